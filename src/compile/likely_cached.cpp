#include "compile/likely_cached.h"

#include <algorithm>
#include <deque>

namespace tutti::compile {

void mark_likely_cached(Segment& segment) {
    constexpr std::size_t moment = 2; // kernels
    std::deque<std::vector<Address>> before;
    for (Instruction& instruction : segment.instructions) {
        if (instruction.lane != Lane::compute) continue;
        std::vector<Address> touched;
        for (auto* arguments : {&instruction.inputs, &instruction.outputs})
            for (Argument& argument : *arguments) {
                touched.push_back(argument.address);
                argument.likely_cached |= std::ranges::any_of(before, [&](const auto& kernel) {
                    return std::ranges::find(kernel, argument.address) != kernel.end();
                });
            }
        before.push_back(std::move(touched));
        if (before.size() > moment) before.pop_front();
    }
}

} // namespace tutti::compile

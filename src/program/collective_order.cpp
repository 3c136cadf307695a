#include "program/collective_order.h"

#include "base/error.h"
#include "base/philox.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

bool is_run(const Instruction& instruction, const Task& task) {
    return (task.last || !instruction.only_last) && (task.first || !instruction.of_last_step);
}

// Parts may differ from rank to rank; what they are parts of does not.
std::int64_t size_of_whole(const Instruction& instruction) {
    if (instruction.kind == InstructionKind::all_to_all) return 0; // goes from parts to parts
    return std::max(instruction.inputs[0].type.bytes().count, instruction.outputs[0].type.bytes().count);
}

} // namespace

std::string collective_orders(const Program& program) {
    struct Order {
        std::int64_t count = 0;
        std::uint64_t digest = 0;
    };
    std::map<std::int32_t, Order> orders; // by group
    for (const Task& task : program.step) {
        if (task.segment < 0) continue;
        for (const Instruction& one : program.segments[static_cast<std::size_t>(task.segment)].instructions) {
            if (one.group < 0 || one.peer >= 0 || !is_run(one, task)) continue;
            Order& order = orders[one.group];
            ++order.count;
            order.digest = hash_of(fmt::format("{:x} {} {}", order.digest, one.op, size_of_whole(one)));
        }
    }
    std::string text;
    for (const auto& [group, order] : orders) {
        const GroupSpec& spec = program.groups[static_cast<std::size_t>(group)];
        text += fmt::format("{} of ranks {}: {} collectives {:016x}\n", spec.name, fmt::join(spec.members, " "),
                            order.count, order.digest);
    }
    return text;
}

void check_collective_orders(const std::vector<std::string>& orders) {
    std::map<std::string_view, std::pair<std::size_t, std::string_view>> said; // by group: a rank, and what it says
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
        std::string_view rest = orders[rank];
        while (!rest.empty()) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(line.size() + 1);
            const std::size_t colon = line.rfind(": ");
            const auto [at, is_new] = said.try_emplace(line.substr(0, colon), rank, line.substr(colon + 2));
            TUTTI_CHECK(is_new || at->second.second == line.substr(colon + 2),
                        "ranks {} and {} differ in the order of their collectives in {}: {} and {}", at->second.first,
                        rank, at->first, at->second.second, line.substr(colon + 2));
        }
    }
}

} // namespace tutti

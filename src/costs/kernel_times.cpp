#include "costs/kernel_times.h"

#include "base/error.h"

#include <fmt/format.h>

namespace tutti::costs {
namespace {

std::string operand_text(const Argument& argument, CacheSensitivity sensitivity) {
    std::string text = to_string(argument.type) + '/';
    for (std::int64_t stride : argument.strides) text += std::to_string(stride) + ',';
    text.pop_back(); // of a scalar: the slash
    return argument.likely_cached && sensitivity == CacheSensitivity::sensitive ? text + " near" : text;
}

KernelTimes mean_of(std::span<const KernelTimes> ranks, std::span<const double> slowdowns) {
    std::map<std::string, std::pair<double, int>> sums;
    for (std::size_t r = 0; r < ranks.size(); ++r)
        for (const auto& [key, seconds] : ranks[r].seconds) {
            sums[key].first += seconds / slowdowns[r];
            ++sums[key].second;
        }
    KernelTimes mean;
    for (const auto& [key, sum] : sums) mean.seconds.emplace(key, sum.first / sum.second);
    return mean;
}

} // namespace

std::string kernel_key(const Instruction& instruction, bool accumulate, CacheSensitivity sensitivity) {
    std::string key = instruction.op;
    for (const auto& [name, value] : instruction.attributes.entries()) key += ' ' + name + '=' + to_string(value);
    for (const Argument& input : instruction.inputs) key += "; " + operand_text(input, sensitivity);
    key += accumulate ? " +>" : " ->";
    for (const Argument& output : instruction.outputs) key += "; " + operand_text(output, sensitivity);
    return key;
}

std::optional<double> KernelTimes::of(const Instruction& instruction, bool accumulate) const {
    if (seconds.empty()) return std::nullopt;
    const auto found = seconds.find(kernel_key(instruction, accumulate));
    return found == seconds.end() ? std::nullopt : std::optional(found->second);
}

std::string to_text(const KernelTimes& times) {
    std::string text;
    for (const auto& [key, seconds] : times.seconds) text += fmt::format("{} {}\n", seconds, key);
    return text;
}

KernelTimes parse_kernel_times(std::string_view text) {
    KernelTimes times;
    while (!text.empty()) {
        const std::size_t space = text.find(' '), end = text.find('\n');
        TUTTI_CHECK(space < end && end < text.size(), "no time of a kernel: {}", text.substr(0, end));
        times.seconds.emplace(text.substr(space + 1, end - space - 1), std::stod(std::string(text.substr(0, space))));
        text.remove_prefix(end + 1);
    }
    return times;
}

PooledTimes pooled(std::span<const KernelTimes> ranks) {
    std::vector<double> slowdowns(ranks.size(), 1.0);
    KernelTimes mean = mean_of(ranks, slowdowns);
    std::map<std::string, int> count;
    for (const KernelTimes& rank : ranks)
        for (const auto& [key, seconds] : rank.seconds) ++count[key];
    // By kernels that others have, too; what only a slow rank has is then not taken to be slow itself.
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        double own = 0, common = 0;
        for (const auto& [key, seconds] : ranks[r].seconds) {
            if (count[key] == 1) continue;
            own += seconds;
            common += mean.seconds[key];
        }
        if (common > 0) slowdowns[r] = own / common;
    }
    return {mean_of(ranks, slowdowns), std::move(slowdowns)};
}

} // namespace tutti::costs

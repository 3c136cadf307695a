#include "program/kernel_times.h"

namespace tutti {
namespace {

std::string operand_text(const Argument& argument) {
    std::string text = to_string(argument.type) + '/';
    for (std::int64_t stride : argument.strides) text += std::to_string(stride) + ',';
    text.pop_back(); // of a scalar: the slash
    return argument.address.region == Region::transient ? text + " near" : text;
}

} // namespace

std::string kernel_key(const Instruction& instruction, bool accumulate) {
    std::string key = instruction.op;
    for (const auto& [name, value] : instruction.attributes.entries()) key += ' ' + name + '=' + to_string(value);
    for (const Argument& input : instruction.inputs) key += "; " + operand_text(input);
    key += accumulate ? " +>" : " ->";
    for (const Argument& output : instruction.outputs) key += "; " + operand_text(output);
    return key;
}

std::optional<double> KernelTimes::of(const Instruction& instruction, bool accumulate) const {
    if (seconds.empty()) return std::nullopt;
    const auto found = seconds.find(kernel_key(instruction, accumulate));
    return found == seconds.end() ? std::nullopt : std::optional(found->second);
}

} // namespace tutti

#include "runtime/prepare.h"

namespace tutti::runtime {

std::unique_ptr<backend::Kernel> prepare(const backend::Device& device, const Instruction& instruction,
                                         bool accumulate) {
    backend::KernelRequest request{.op = instruction.op,
                                   .attributes = instruction.attributes,
                                   .inputs = {},
                                   .outputs = {},
                                   .accumulate = accumulate,
                                   .source = instruction.source};
    for (const Argument& input : instruction.inputs) request.inputs.push_back({input.type, input.strides});
    for (const Argument& output : instruction.outputs) request.outputs.push_back({output.type, output.strides});
    return device.prepare(request);
}

} // namespace tutti::runtime

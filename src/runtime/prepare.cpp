#include "runtime/prepare.h"

namespace tutti {

std::unique_ptr<Kernel> prepare(const Device& device, const Instruction& instruction, bool accumulate) {
    KernelRequest request{.op = instruction.op,
                          .attributes = instruction.attributes,
                          .inputs = {},
                          .outputs = {},
                          .accumulate = accumulate,
                          .source = instruction.source};
    for (const Argument& input : instruction.inputs) request.inputs.push_back({input.type, input.strides});
    for (const Argument& output : instruction.outputs) request.outputs.push_back({output.type, output.strides});
    return device.prepare(request);
}

} // namespace tutti

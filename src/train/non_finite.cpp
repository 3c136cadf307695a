#include "train/non_finite.h"

#include "formats/tensor_store.h"

#include <cmath>

namespace tutti::train {
namespace {

// All from the first element to the last is copied; what lies in the gaps of a strided one is others'.
bool is_finite(const backend::Device& device, const Argument& argument, const std::byte* from) {
    const Shape& shape = argument.type.shape;
    if (!is_floating(argument.type.dtype)) return true;
    std::int64_t span = 1;
    for (int d = 0; d < shape.rank(); ++d) span += (shape[d] - 1) * argument.strides[d];
    std::vector<std::byte> raw(static_cast<std::size_t>(span * size_of(argument.type.dtype)));
    device.copy_out(raw, from);
    std::vector<double> values(static_cast<std::size_t>(span));
    formats::convert_elements(argument.type.dtype, raw, DType::float64, std::as_writable_bytes(std::span(values)));
    for (std::int64_t i = 0; i < argument.type.elements(); ++i) {
        std::int64_t rest = i, at = 0;
        for (int d = shape.rank() - 1; d >= 0; --d) {
            at += rest % shape[d] * argument.strides[d];
            rest /= shape[d];
        }
        if (!std::isfinite(values[static_cast<std::size_t>(at)])) return false;
    }
    return true;
}

} // namespace

std::string find_non_finite(Session& session, StepScalars scalars, const runtime::Executor::Load& load) {
    std::string found;
    runtime::Executor& executor = session.executor();
    executor.step(scalars, load, {}, [&](const Task& task, const Instruction& instruction) {
        if (!found.empty() || task.kind == TaskKind::update) return;
        for (const Argument& output : instruction.outputs)
            if (!is_finite(session.device(), output, executor.address(output.address, task)))
                found = fmt::format("the first bad tensor is the output of {} at {}, in the {} of micro-batch {}",
                                    instruction.op, instruction.source.empty() ? "the optimizer" : instruction.source,
                                    name_of(task.kind), task.micro_batch);
    });
    return found;
}

} // namespace tutti::train

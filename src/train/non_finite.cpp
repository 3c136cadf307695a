#include "train/non_finite.h"

#include "formats/tensor_store.h"

#include <cmath>

namespace tutti {
namespace {

// Elements from the first to the last that the argument reaches; gaps of a strided one are its neighbours, finite or
// not found yet.
bool is_finite(const Device& device, const Argument& argument, const std::byte* from) {
    if (!is_floating(argument.type.dtype) || !is_dense(argument.type.shape, argument.strides)) return true;
    std::vector<std::byte> raw(static_cast<std::size_t>(argument.type.bytes().count));
    device.copy_out(raw, from);
    std::vector<double> values(static_cast<std::size_t>(argument.type.elements()));
    convert_elements(argument.type.dtype, raw, DType::float64, std::as_writable_bytes(std::span(values)));
    for (double value : values)
        if (!std::isfinite(value)) return false;
    return true;
}

} // namespace

std::string find_non_finite(Session& session, StepScalars scalars, const Executor::Load& load) {
    std::string found;
    Executor& executor = session.executor();
    executor.step(scalars, load, {}, [&](const Task& task, const Instruction& instruction) {
        if (!found.empty() || task.kind == TaskKind::update) return;
        for (const Argument& output : instruction.outputs)
            if (!is_finite(session.device(), output, executor.address(output.address, task)))
                found = fmt::format("the first bad tensor is the output of {} at {}, in the {} of micro-batch {}",
                                    instruction.op, instruction.source.empty() ? "the optimizer" : instruction.source,
                                    name_of(task.kind), task.micro_batch);
    });
    return found.empty() ? "no single tensor is to blame" : found;
}

} // namespace tutti

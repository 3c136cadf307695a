// Kernels of attention timed on random operands of their own.
#include "backend/cuda/attention_choice.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/timing.h"
#include "base/error.h"

#include <algorithm>
#include <limits>

namespace tutti::backend::cuda {
namespace {

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Where the operands lie, one behind the other.
struct Operands {
    std::vector<std::int64_t> inputs, outputs;
    std::int64_t scalars = 0, workspace = 0, end = 0;

    Operands(const KernelRequest& request, std::int64_t workspace_bytes) {
        for (const Operand& operand : request.inputs) inputs.push_back(take(span_of(operand)));
        for (const Operand& operand : request.outputs) outputs.push_back(take(span_of(operand)));
        scalars = take(sizeof(StepScalars));
        workspace = take(workspace_bytes);
    }

  private:
    static std::int64_t span_of(const Operand& operand) {
        std::int64_t last = 0;
        for (int d = 0; d < operand.type.shape.rank(); ++d) last += (operand.type.shape[d] - 1) * operand.strides[d];
        return (last + 1) * size_of(operand.type.dtype);
    }
    std::int64_t take(std::int64_t bytes) {
        const std::int64_t at = end;
        end += rounded(bytes);
        return at;
    }
};

} // namespace

std::size_t time_attention(const KernelRequest& request, const std::vector<AttentionCandidate>& candidates,
                           double& microseconds) {
    std::int64_t workspace = 0;
    for (const AttentionCandidate& one : candidates) workspace = std::max(workspace, one.kernel->workspace().count);
    const Operands at(request, workspace);
    const DeviceBlock block(at.end);
    microseconds = 0;
    if (!block.data()) return 0; // no memory for it

    CudaQueue queue(std::make_shared<Streams>());
    const Stopwatch watch(queue.stream());
    // All tokens are of one document, and counters begin at 0.
    check(cudaMemsetAsync(block.data(), 0, static_cast<std::size_t>(at.end), queue.stream()), "timing attention");
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (std::size_t i = 0; i < at.inputs.size(); ++i) {
        std::byte* const input = block.data() + at.inputs[i];
        const DType dtype = request.inputs[i].type.dtype;
        const std::int64_t next = i + 1 < at.inputs.size() ? at.inputs[i + 1] : at.outputs[0];
        if (is_floating(dtype))
            launch_random_values(queue.stream(), dtype, input, (next - at.inputs[i]) / size_of(dtype));
        inputs.push_back(input);
    }
    for (const std::int64_t output : at.outputs) outputs.push_back(block.data() + output);
    const Launch launch{.inputs = inputs,
                        .outputs = outputs,
                        .workspace = block.data() + at.workspace,
                        .scalars = reinterpret_cast<StepScalars*>(block.data() + at.scalars),
                        .queue = &queue};
    auto time = [&](std::size_t candidate, int runs) {
        try {
            return watch.microseconds([&] {
                for (int i = 0; i < runs; ++i) candidates[candidate].kernel->run(launch);
            }) / runs;
        } catch (const WorldError&) {
            (void)cudaGetLastError();
            return std::numeric_limits<double>::infinity();
        }
    };
    return fastest(candidates.size(), time, microseconds);
}

} // namespace tutti::backend::cuda

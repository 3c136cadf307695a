#include "train/evaluation.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::train {
namespace {

double read_loss(const backend::Device& device, const runtime::Executor& executor) {
    const Argument& loss = executor.output("loss").buffer;
    std::byte bytes[8] = {};
    device.copy_out(std::span(bytes, static_cast<std::size_t>(loss.type.bytes().count)),
                    executor.address(loss.address));
    double wide = 0;
    float narrow = 0;
    std::memcpy(&wide, bytes, sizeof wide);
    std::memcpy(&narrow, bytes, sizeof narrow);
    return loss.type.dtype == DType::float64 ? wide : static_cast<double>(narrow);
}

} // namespace

// Replicas, and copies within them, take turns with the samples. Every rank goes through every turn; where samples have
// run out, no target counts.
EvaluationLoss evaluation_loss(Session& session, const run::RunConfig& config, offload::ModelData& data,
                               std::byte* scratch, offload::Residence* residence) {
    runtime::Executor& evaluator = *session.evaluator();
    const Program& program = evaluator.program();
    const sharding::MeshPlace place = session.place();
    const std::int64_t size = program.micro_batch_samples, copies = program.micro_batches;
    run::RunConfig ordered = config;
    ordered.seed = config.seed + 1;
    Batches batches(session.data().evaluation, ordered, session.facts(), size);
    evaluator.bind(data, scratch, residence);
    const bool has_loss = std::ranges::find(program.outputs, "loss", &NamedBuffer::name) != program.outputs.end();
    std::exception_ptr unread;
    auto read = [&](std::int64_t sample) -> std::int64_t {
        try {
            return batches.read(sample);
        } catch (const std::exception&) {
            if (!unread) unread = std::current_exception();
            batches.clear();
            return 0;
        }
    };
    std::array<double, 2> sums = {}; // losses, targets
    const std::int64_t all = std::min(config.eval_batches, session.data().evaluation->samples() / size);
    const std::int64_t count = std::max<std::int64_t>(all, 1);
    for (std::int64_t turn = 0; turn < count; turn += copies * session.plan().mesh.data) {
        const std::int64_t first = turn + place.data * copies;
        for (std::int64_t m = first; m < std::min(first + copies, count); ++m) {
            const std::int64_t tokens = read(m * size);
            if (place.pipe == 0 && place.tensor == 0) sums[1] += static_cast<double>(tokens);
        }
        evaluator.step({}, [&](std::int32_t micro_batch, std::span<std::byte* const> inputs) {
            const std::int64_t m = first + micro_batch;
            read(std::min(m, count - 1) * size);
            if (m >= count) batches.ignore_targets();
            fill_inputs(program, batches, 0, inputs);
        });
        if (has_loss && place.tensor == 0) sums[0] += read_loss(session.device(), evaluator);
    }
    comm::Group& group = session.world().all();
    group.wait(group.all_reduce(std::as_writable_bytes(std::span(sums)), DType::float64, Combine::sum));
    return {sums[0] / std::max(sums[1], 1.0), unread};
}

} // namespace tutti::train

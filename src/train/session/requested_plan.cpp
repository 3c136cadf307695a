#include "train/session/requested_plan.h"

#include "comm/agree.h"
#include "resolve/run_plan.h"

namespace tutti::train {
namespace {

resolve::OffloadChoice offload_choice(const run::RunConfig& config, const OpenedRun& opened, const models::Model& model,
                                      TimingOnce& timing) {
    resolve::OffloadChoice choice{.kind = config.offload_activations};
    if (choice.kind != run::ActivationOffload::automatic) return choice;
    // The run will take weights, gradients and moments at least.
    Bytes tensors;
    for (const StoredTensor& tensor : model.graph.stored()) tensors += tensor.type.bytes();
    const profiling::OffloadTiming& speeds =
        timing(config.precision.compute, Bytes{4 * tensors.count / opened.world().size()});
    choice.copies = speeds.copied_bytes();
    choice.flops = speeds.flops();
    return choice;
}

// With what the run decided when it started: it goes on to the same bits, and nothing is timed again.
Plan completed_before(Plan made, const Plan* before, comm::World& world) {
    const std::string text = comm::first_decides(world.all(), [&]() -> std::string {
        return before != nullptr && resolve::completes(*before, made) ? to_json(*before) : "";
    });
    return text.empty() ? made : parse_plan(text, "the plan of the run that goes on");
}

Plan followed_or_made(const run::RunConfig& config, const OpenedRun& opened, const models::Model& model,
                      TimingOnce& timing, const Plan* before) {
    const resolve::DataShape data{opened.data.sequence, opened.data.global_batch};
    if (!opened.followed) {
        Plan made = resolve::make_plan(config, data, model, opened.usable_memory(),
                                       offload_choice(config, opened, model, timing));
        return config.resumes() ? completed_before(std::move(made), before, opened.world()) : made;
    }
    if (!config.plan.empty()) resolve::check_followed(*opened.followed, config, data, model);
    return *opened.followed;
}

} // namespace

Plan requested_plan(const run::RunConfig& config, const OpenedRun& opened, const models::Model& model,
                    TimingOnce& timing, const Plan* before) {
    Plan plan = followed_or_made(config, opened, model, timing, before);
    if (!config.gradients_over_weights) plan.gradients_over_weights = false;
    return config.dump_step0.empty() ? plan : resolve::for_dump(std::move(plan));
}

} // namespace tutti::train

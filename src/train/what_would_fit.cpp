#include "train/what_would_fit.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "graph/blocks.h"
#include "schedule/families.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace tutti::train {
namespace {

// A run that was asked for, changed by some flags.
struct Change {
    std::string flags;
    Plan plan;
};

// Activation recomputation of every block.
Change with_recompute(Change change, int blocks) {
    Plan& plan = change.plan;
    const std::vector<std::vector<int>> before = plan.recompute;
    plan.recompute.assign(static_cast<std::size_t>(plan.stages()), {});
    for (int stage = 0; stage < plan.stages(); ++stage) {
        const auto at = static_cast<std::size_t>(stage);
        const int first = stage == 0 ? 0 : plan.cuts[at - 1];
        const int end = stage + 1 == plan.stages() ? blocks : plan.cuts[at];
        plan.recompute[at].resize(static_cast<std::size_t>(end - first));
        std::iota(plan.recompute[at].begin(), plan.recompute[at].end(), first);
    }
    if (plan.recompute != before) change.flags += " --recompute full";
    return change;
}

Change with_narrow_types(Change change) {
    Precision& types = change.plan.precision;
    if (types.compute != DType::bfloat16) change.flags += " --dtype bf16";
    if (types.gradients != DType::bfloat16) change.flags += " --gradients bf16";
    if (types.compute != DType::bfloat16 || types.master != DType::bfloat16) change.flags += " --master bf16";
    if (types.moments != DType::bfloat16) change.flags += " --moments bf16";
    types = {DType::bfloat16, DType::bfloat16, DType::bfloat16, DType::bfloat16};
    return change;
}

// Nothing where the schedule of a pipeline does not take as many micro-batches as that makes.
std::optional<Plan> with_micro_batch(Plan plan, std::int64_t size) {
    if (size == plan.workload.micro_batch) return plan;
    plan.workload.micro_batch = size;
    if (!plan.schedule) return plan;
    try {
        schedule::ScheduleParameters parameters = plan.schedule->schedule.parameters;
        parameters.micro_batches = narrow<int>(plan.micro_batches());
        plan.schedule->schedule = schedule::make_schedule(schedule::resolve(parameters), plan.schedule->costs);
        return plan;
    } catch (const Error&) {
        return std::nullopt;
    }
}

// The largest micro-batch with which it fits, its own or a smaller one.
std::optional<std::string> fitting(const Session& session, const Change& change, Bytes room) {
    const Workload& workload = change.plan.workload;
    for (std::int64_t size = workload.micro_batch; size > 0; --size) {
        if (workload.global_batch % (size * change.plan.mesh.data) != 0) continue;
        if (change.plan.sub_pipeline && size % 2 != 0) continue;
        if (size == workload.micro_batch && change.flags.empty()) continue; // as it was asked for
        const std::optional<Plan> plan = with_micro_batch(change.plan, size);
        if (!plan) continue;
        const Bytes needed = session.memory_of(*plan).arena();
        if (needed > room) continue;
        std::string flags = change.flags;
        if (size < workload.micro_batch) flags += fmt::format(" --micro-batch {}", size);
        return fmt::format("{} would need {} and fit", flags.substr(1), to_string(needed));
    }
    return std::nullopt;
}

std::string size_flag(Bytes size) {
    return size.count >> 30 > 1 ? fmt::format("{}GiB", size.count >> 30) : fmt::format("{}MiB", size.count >> 20);
}

// Of a model that is too large however it is computed.
std::string more_memory(const Session& session, const Plan& smallest, Bytes room) {
    const run::MemoryTable table = session.memory_of(smallest);
    const Bytes rest = table.arena() - table.model_data();
    const bool has_own = session.device().memory().has_value();
    if (rest >= room)
        return fmt::format("Not even one sequence at a time fits: beside weights, gradients and optimizer states it "
                           "takes {}, and a shorter --sequence takes less",
                           to_string(rest));
    std::string text = fmt::format("No --micro-batch, --recompute or narrower type makes it fit: in bf16, weights, "
                                   "gradients and optimizer states alone take {}. ",
                                   to_string(table.model_data()));
    text += has_own ? fmt::format("--device-memory {} keeps what is too much in host memory", size_flag(room))
                    : fmt::format("--device-memory {} --host-memory 1GiB --disk DIR keeps what is too much in files, "
                                  "slowly",
                                  size_flag({room.count * 3 / 4})); // the system and libraries need the rest
    const std::int64_t parts = (table.model_data().count - 1) / (room - rest).count + 1;
    if (smallest.mesh.ranks() == 1)
        return text + fmt::format("; or about {} share it: --mesh data={} --zero 3",
                                  counted(parts, has_own ? "such GPU" : "such machine"), parts);
    return text + "; or more ranks share it, with --zero 3";
}

} // namespace

std::string what_would_fit(const Session& session, Bytes room) {
    const Plan& plan = session.plan();
    if (plan.strategies || plan.device_memory.count > 0)
        return "A plan with smaller micro-batches, or more ranks, would need less";
    const models::Model one = session.source().build({1, plan.workload.sequence, plan.precision.compute});
    const Change asked{.flags = "", .plan = plan};
    const Change again = with_recompute(asked, narrow<int>(find_blocks(one.graph).size()));
    const Change narrower = with_narrow_types(again);
    for (const Change* change : {&asked, &again, &narrower})
        if (const auto found = fitting(session, *change, room)) return *found;
    const std::optional<Plan> smallest = with_micro_batch(narrower.plan, plan.sub_pipeline ? 2 : 1);
    return more_memory(session, smallest.value_or(narrower.plan), room);
}

} // namespace tutti::train

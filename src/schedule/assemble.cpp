#include "schedule/generate.h"

namespace tutti::schedule {
namespace {

// Recomputation into an order that does not place it: as a part of the backward, or as a task right before it, which
// then runs while the rank waits for the gradient.
Order with_recompute(const Order& order, const ScheduleParameters& parameters) {
    std::vector<char> placed(static_cast<std::size_t>(parameters.stages()), 0);
    for (const ScheduledTask& task : order)
        if (task.work == Work::recompute) placed[task.stage] = 1;
    Order added;
    for (ScheduledTask task : order) {
        const Recompute policy = parameters.recompute[task.stage];
        if (task.work == Work::forward) task.recomputes = policy != Recompute::never;
        if (is_backward(task.work)) task.recomputes = policy == Recompute::on_gradient;
        if (is_backward(task.work) && policy == Recompute::early && !placed[task.stage])
            added.push_back({Work::recompute, false, task.replica, task.stage, task.micro_batch});
        added.push_back(task);
    }
    return added;
}

} // namespace

Schedule assemble(const ScheduleParameters& parameters, const Orders& orders) {
    Schedule schedule{parameters};
    schedule.first.push_back(0);
    for (const Order& order : orders) {
        const Order whole = parameters.recompute.empty() ? order : with_recompute(order, parameters);
        schedule.tasks.insert(schedule.tasks.end(), whole.begin(), whole.end());
        schedule.first.push_back(static_cast<std::int32_t>(schedule.tasks.size()));
    }
    return schedule;
}

} // namespace tutti::schedule

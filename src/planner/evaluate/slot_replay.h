// A rank's order of tasks replayed with the slots that they take and release (program/slots.h), as compile/ finds them,
// but that messages which overtake each other may take a slot more there.
#pragma once

#include "program/program.h"
#include "schedule/schedule.h"

#include <cstdint>
#include <vector>

namespace tutti::planner {

// Of every stage, as long as the step takes: messages that are on their way.
inline int slots_always(const schedule::ScheduleParameters& p, Region region) {
    return region == Region::outbox && p.stages() > 1 ? 2 : 0;
}

// Calls take(task, owner, slot) and release(task, owner, slot) with the number of the rank's task at whose begin or end
// it happens, the task whose stage, replica and micro-batch the slot is of, and its kind; then done(task).
template <class Take, class Release, class Done>
void replay_slots(const schedule::Schedule& schedule, int rank, const Take& take, const Release& release,
                  const Done& done) {
    const schedule::ScheduleParameters& p = schedule.parameters;
    const int stages = p.stages();
    const std::span<const schedule::ScheduledTask> tasks = schedule.rank(rank);
    struct State {
        std::uint16_t held = 0, left = 0; // a bit for each kind of slot; tasks
    };
    std::vector<State> states(static_cast<std::size_t>(stages * p.model_replicas) *
                              static_cast<std::size_t>(p.micro_batches));
    auto state = [&](const schedule::ScheduledTask& task) -> State& {
        return states[static_cast<std::size_t>(task.replica * stages + task.stage) *
                          static_cast<std::size_t>(p.micro_batches) +
                      static_cast<std::size_t>(task.micro_batch)];
    };
    for (const schedule::ScheduledTask& task : tasks) ++state(task).left;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        auto need = [&](const schedule::ScheduledTask& owner, Region region) {
            const std::size_t slot = slotted(region);
            const auto bit = static_cast<std::uint16_t>(1 << slot);
            if ((state(owner).held & bit) != 0) return;
            state(owner).held |= bit;
            take(i, owner, slot);
        };
        auto receive = [&](const schedule::ScheduledTask& owner) {
            if (owner.work == schedule::Work::forward && owner.stage > 0) need(owner, Region::received);
            if (schedule::is_backward(owner.work) && owner.stage + 1 < stages) need(owner, Region::returned);
        };
        const schedule::ScheduledTask& task = tasks[i];
        receive(task);
        if (i + 1 < tasks.size()) receive(tasks[i + 1]);
        if (task.work == schedule::Work::forward) need(task, Region::stash);
        if (task.work == schedule::Work::recompute) need(task, Region::recomputed);
        if (schedule::is_backward(task.work)) need(task, Region::deferred);
        State& own = state(task);
        if (--own.left == 0)
            for (std::size_t slot = 0; slot < slotted_count; ++slot)
                if ((own.held >> slot & 1) != 0) release(i, task, slot);
        done(i);
    }
}

} // namespace tutti::planner

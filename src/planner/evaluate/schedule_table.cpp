#include "planner/evaluate/schedule_table.h"

#include "base/error.h"
#include "planner/evaluate/slot_replay.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::planner {
std::vector<std::vector<StageSlots>> count_slots(const schedule::Schedule& schedule) {
    const schedule::ScheduleParameters& p = schedule.parameters;
    struct Pool {
        std::array<int, slotted_count> held{}, most{};
    };
    std::vector<std::vector<StageSlots>> result;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        std::vector<Pool> pools(static_cast<std::size_t>(p.stages() * p.model_replicas));
        auto pool_of = [&](const schedule::ScheduledTask& task) -> Pool& {
            return pools[static_cast<std::size_t>(task.replica * p.stages() + task.stage)];
        };
        replay_slots(
            schedule, rank,
            [&](std::size_t, const schedule::ScheduledTask& owner, std::size_t slot) {
                Pool& pool = pool_of(owner);
                pool.most[slot] = std::max(pool.most[slot], ++pool.held[slot]);
            },
            [&](std::size_t, const schedule::ScheduledTask& owner, std::size_t slot) { --pool_of(owner).held[slot]; },
            [](std::size_t) {});
        std::vector<StageSlots>& own = result.emplace_back();
        for (int replica = 0; replica < p.model_replicas; ++replica)
            for (int stage = 0; stage < p.stages(); ++stage) {
                if (schedule::rank_of(p, replica, stage) != rank) continue;
                StageSlots slots{stage, replica, pools[static_cast<std::size_t>(replica * p.stages() + stage)].most};
                slots.slots[slotted(Region::outbox)] = slots_always(p, Region::outbox);
                own.push_back(slots);
            }
    }
    return result;
}

ReadySchedule::ReadySchedule(schedule::Schedule made)
    : schedule(std::move(made)), evaluator(schedule), ranks(count_slots(schedule)) {}

BackwardStyle style_of(const schedule::ScheduleParameters& resolved) {
    if (resolved.split_backward) return BackwardStyle::split;
    return schedule::find_family(resolved.family).recomputes_early ? BackwardStyle::early : BackwardStyle::whole;
}

BackwardStyle style_in(const schedule::ScheduleParameters& made, int stage, BackwardStyle style) {
    const bool known = static_cast<std::size_t>(stage) < made.recompute.size();
    return style == BackwardStyle::early && known &&
                   made.recompute[static_cast<std::size_t>(stage)] != schedule::Recompute::early
               ? BackwardStyle::whole
               : style;
}

bool follows_costs(const std::string& family) { return schedule::find_family(family).follows_costs; }

ReadySchedule* ScheduleTable::find(const schedule::ScheduleParameters& p) {
    const Key key{p.family, p.ranks, p.micro_batches, p.stages_per_rank, p.model_replicas, p.in_flight, p.placement};
    const auto [tried, is_new] = tried_.try_emplace(key, true);
    if (is_new) {
        try {
            const bool early = !follows_costs(p.family) && style_of(schedule::resolve(p)) == BackwardStyle::early;
            schedules_[key] = std::make_unique<ReadySchedule>(schedule::make_schedule(
                p, {.forward = 1, .backward = 1, .weight_gradient = 1, .recompute = early ? 1.0 : 0.0}));
            tasks_ += schedules_[key]->schedule.tasks.size();
        } catch (const Error&) { // it does not take these numbers
            schedules_.erase(key);
        }
    }
    const auto found = schedules_.find(key);
    return found == schedules_.end() ? nullptr : found->second.get();
}

void ScheduleTable::trim() {
    constexpr std::size_t most_tasks = 6'000'000;
    if (tasks_ <= most_tasks) return;
    schedules_.clear();
    tried_.clear();
    tasks_ = 0;
}

const ScheduleTraits& ScheduleTable::traits(const schedule::ScheduleParameters& parameters) {
    constexpr int longest = 8;
    schedule::ScheduleParameters p = parameters;
    p.ranks = std::min(p.ranks, longest);
    p.micro_batches = 2 * p.ranks;
    p.in_flight = p.in_flight * p.ranks / parameters.ranks;
    const auto key = std::tuple(p.family, p.ranks, p.stages_per_rank, p.placement, p.in_flight);
    const auto [found, is_new] = traits_.try_emplace(key);
    if (!is_new) return found->second;
    ScheduleTraits& traits = found->second;
    try {
        const schedule::StageCosts share{.forward = 1, .backward = 1, .weight_gradient = 1};
        const schedule::Schedule schedule = schedule::make_schedule(p, share);
        const double time = schedule::evaluate(schedule, schedule::uniform_costs(schedule.parameters, share)).time;
        traits.idle = p.ranks == 1 ? 0 : std::max(0.0, time - 3.0 * p.micro_batches) / (3.0 * (p.ranks - 1));
        traits.model_replicas = schedule.parameters.model_replicas;
        traits.stages_of_rank = schedule.parameters.stages_per_rank * traits.model_replicas;
        traits.recomputes_early = style_of(schedule.parameters) == BackwardStyle::early;
        for (const std::vector<StageSlots>& rank : count_slots(schedule)) {
            double& held = traits.held.emplace_back(0);
            for (const StageSlots& stage : rank)
                held += static_cast<double>(stage.slots[slotted(Region::stash)]) / schedule.parameters.stages();
        }
    } catch (const Error&) {
        for (int rank = 0; rank < p.ranks; ++rank) traits.held.push_back(static_cast<double>(p.ranks - rank) / p.ranks);
    }
    return traits;
}

} // namespace tutti::planner

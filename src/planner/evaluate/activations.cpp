#include "planner/evaluate/activations.h"

#include "planner/evaluate/slot_replay.h"

#include <map>
#include <utility>

namespace tutti::planner {
namespace {

class Curve {
  public:
    explicit Curve(double always) : held_(always), points_{{0, always}} {}

    void change(double time, double bytes) {
        held_ += bytes;
        if (points_.back().time == time)
            points_.back().bytes = held_;
        else
            points_.push_back({time, held_});
    }
    std::vector<HeldFrom> take() { return std::move(points_); }

  private:
    double held_;
    std::vector<HeldFrom> points_;
};

} // namespace

std::vector<std::vector<HeldFrom>> activations_held(PlanModel& model, const PlanDecisions& decisions,
                                                    const schedule::Schedule& schedule,
                                                    const schedule::Evaluation& evaluation) {
    const schedule::ScheduleParameters& made = schedule.parameters;
    PlanDecisions resolved = decisions;
    resolved.schedule = made;
    const PlacedRanks placed = place_ranks(model.cluster(), decisions.mesh(), decisions.layout);
    const BackwardStyle style = style_of(made);
    std::vector<std::vector<HeldFrom>> ranks;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        std::map<int, StageFigures> stages;
        double always = 0;
        for (int replica = 0; replica < made.model_replicas; ++replica)
            for (int stage = 0; stage < made.stages(); ++stage) {
                if (schedule::rank_of(made, replica, stage) != rank) continue;
                const StageCost cost = model.stage_cost(
                    resolved, placed, style_in(made, stage, style), rank, decisions.first_block(stage),
                    decisions.end_block(stage, model.chain().blocks()), decisions.recomputed_in(stage));
                always += slots_always(made, Region::outbox) * cost.figures.slot(Region::outbox);
                stages[stage] = cost.figures;
            }
        Curve curve(always);
        const std::span<const schedule::ScheduledTask> tasks = schedule.rank(rank);
        const auto first = static_cast<std::size_t>(schedule.first[static_cast<std::size_t>(rank)]);
        double released = 0; // by the task that is replayed
        replay_slots(
            schedule, rank,
            [&](std::size_t task, const schedule::ScheduledTask& owner, std::size_t slot) {
                curve.change(evaluation.start[first + task], stages[owner.stage].slots[slot]);
            },
            [&](std::size_t, const schedule::ScheduledTask& owner, std::size_t slot) {
                released += stages[owner.stage].slots[slot];
            },
            [&](std::size_t task) {
                const double within = stages[tasks[task].stage].transient;
                curve.change(evaluation.start[first + task], within);
                curve.change(evaluation.end[first + task], -within - std::exchange(released, 0));
            });
        ranks.push_back(curve.take());
    }
    return ranks;
}

} // namespace tutti::planner

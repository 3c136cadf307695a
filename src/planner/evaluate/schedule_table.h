// Schedules as the planner uses them: with the evaluator made ready, and the slots that their order takes. Those that
// do not depend on costs are made once.
#pragma once

#include "planner/evaluate/segments.h"
#include "schedule/evaluate.h"
#include "schedule/schedule.h"

#include <array>
#include <map>
#include <memory>
#include <vector>

namespace tutti::planner {

// A stage of a rank, and how many slots of each kind its tasks take (program/slots.h).
struct StageSlots {
    int stage = 0, replica = 0;
    std::array<int, slotted_count> slots{};
};

struct ReadySchedule {
    explicit ReadySchedule(schedule::Schedule made);

    schedule::Schedule schedule;
    schedule::Evaluator evaluator;
    std::vector<std::vector<StageSlots>> ranks;
};

// The most of each kind that are taken at once, by the replay of slot_replay.h.
std::vector<std::vector<StageSlots>> count_slots(const schedule::Schedule& schedule);

// What a family asks of a backward.
BackwardStyle style_of(const schedule::ScheduleParameters& resolved);
// Of one stage of a schedule that was made: some recompute early in all stages but the last.
BackwardStyle style_in(const schedule::ScheduleParameters& made, int stage, BackwardStyle style);
bool follows_costs(const std::string& family); // its order comes from the costs of the stages

// What a family does with equal stages.
struct ScheduleTraits {
    double idle = 1;            // its idle time over that of 1F1B: the scaling law's beta
    std::vector<double> held{}; // per rank: activations of the whole model that it holds at most, in micro-batches
    int model_replicas = 1, stages_of_rank = 1; // of all model replicas
    bool recomputes_early = false;
};

class ScheduleTable {
  public:
    // With equal stages, which matters for families that follow costs; null where the family does not take these
    // numbers. It stays until `trim`.
    ReadySchedule* find(const schedule::ScheduleParameters& parameters);
    void trim(); // lets go of all where they have become too many
    // Of a short pipeline of the family; as if it were 1F1B where there is none of so few ranks.
    const ScheduleTraits& traits(const schedule::ScheduleParameters& parameters);
    double idle_coefficient(const schedule::ScheduleParameters& parameters) { return traits(parameters).idle; }

  private:
    using Key = std::tuple<std::string, int, int, int, int, int, schedule::StagePlacement>;
    std::map<Key, std::unique_ptr<ReadySchedule>> schedules_;
    std::map<Key, bool> tried_;
    std::map<std::tuple<std::string, int, int, schedule::StagePlacement, int>, ScheduleTraits> traits_;
    std::size_t tasks_ = 0; // of all that are kept
};

} // namespace tutti::planner

// The joint search: scaling, splitting, scheduling and assignment decided together. Scalings with their assignments are
// enumerated and ordered by estimates of their step time (step_time_estimate.h); each that could still be the best is
// split exactly and tried with every schedule, evaluated exactly. A scaling is skipped if it cannot be better, by a
// bound that holds for all of its plans or, in large searches, by its estimate.
#pragma once

#include "planner/evaluate/plan_model.h"
#include "planner/evaluate/splitting.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::planner {

// What is open to the search. Switching one off leaves what people would do instead.
struct SearchSpace {
    // Only these; empty: all of them.
    std::vector<std::string> families{};
    bool splitting = true;  // else: stages of as many blocks each
    bool assignment = true; // else: the usual layout
    // Only this width, these ranks and this micro-batch.
    std::optional<PlanDecisions> scaling{};
    std::optional<Zero> zero{};
    std::optional<std::int64_t> micro_batch{};
    std::optional<int> devices{}; // so many of the cluster's
    bool all_devices = false;     // none is left idle
    bool offload = false;         // chunks need not fit
    // Only these ways of splitting operators, each with its micro-batch; empty: all of tensor_parallel_menu, with any.
    std::vector<std::pair<TensorParallelism, std::int64_t>> tensor_parallel{};
};

struct RankedPlan {
    std::string name{}; // "joint", "Megatron, 1F1B"
    PlanDecisions decisions{};
    PlanCost cost{};
};

struct SearchedPlan {
    double time = 0, memory = 0; // of the tightest rank
    std::string family{};
    std::string what{};
};

struct SearchProgress {
    std::size_t trials = 0, done = 0; // scalings with a schedule
    std::size_t plans = 0;            // evaluated
    double best = 0;                  // seconds; 0: nothing fits so far
    double bound = 0;                 // no plan can be faster
};
using ProgressListener = std::function<bool(const SearchProgress&)>; // false: stop with what there is

// Thrown through the search where its listener does not want more of it; what was found until then is kept.
struct SearchStopped {};

struct SearchResult {
    std::vector<RankedPlan> best{};      // the fastest of each scaling, by rising time; empty: nothing fits
    std::optional<RankedPlan> closest{}; // where nothing fits: what needs least
    SearchProgress progress{};
    std::vector<SearchedPlan> searched{};
    bool stopped = false; // by the listener: there may be faster plans
};

struct SearchOptions {
    SearchSpace space{};
    std::size_t kept = 10; // plans
    std::size_t few = 64;  // so many scalings are tried with everything; of more, what seems slow is passed over
    // Plans that are known already: only faster ones are looked for.
    std::vector<RankedPlan> known{};
    ProgressListener listener{};
};

SearchResult search(PlanModel& model, const SearchOptions& options);

// What a scaling with a schedule and a ZeRO level may reach.
struct StepTimeEstimate {
    Zero zero{};
    double seconds = 0;
};

// Tries schedules, ZeRO levels and splits for scalings, and keeps the best of what was tried since it was last taken.
class ScheduleSearch {
  public:
    // `exhaustive`: nothing is passed over by estimates.
    ScheduleSearch(PlanModel& model, const SearchSpace& space, const ProgressListener& listener, SearchResult& result,
                   bool exhaustive)
        : model_(model), space_(space), listener_(listener), result_(result), exhaustive_(exhaustive) {}

    // `decisions` has scaling and layout; `limit`: what is slower need not be found.
    void try_schedule(PlanDecisions decisions, const PlacedRanks& placed,
                      const schedule::ScheduleParameters& parameters, std::span<const StepTimeEstimate> estimates,
                      double limit);
    // Cuts moved by a block as long as that is faster.
    void polish(RankedPlan& plan);
    std::optional<RankedPlan> take() { return std::exchange(best_, std::nullopt); }

  private:
    bool consider(Splitter& splitter, std::vector<int> cuts, const PlacedRanks& placed, ReadySchedule& ready);
    std::vector<std::vector<int>> splits_of(Splitter& splitter) const;
    double seems_to_take(const PlanDecisions& decisions, const PlacedRanks& placed,
                         const schedule::ScheduleParameters& brief, ReadySchedule& ready);
    void report_progress() const;
    double limit() const { return best_ ? std::min(limit_, best_->cost.time) : limit_; }

    PlanModel& model_;
    const SearchSpace& space_;
    const ProgressListener& listener_;
    SearchResult& result_;
    bool exhaustive_;
    double limit_ = 0, last_time_ = 0;
    std::optional<RankedPlan> best_;
};

// Schedules that are worth trying for so many ranks, micro-batches and blocks.
std::vector<schedule::ScheduleParameters> schedule_menu(int ranks, int micro_batches, int blocks, bool following_costs);

} // namespace tutti::planner

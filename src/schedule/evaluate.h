// The exact evaluator of a schedule: when every task starts and ends, how many activations are kept, why a rank waits.
//
// A task starts when its rank is free and its message has come; a rank runs its tasks in order. Of the other
// dependencies (a backward after its own forward, a weight gradient after its backward) the order on the rank takes
// care, so every task has at most one predecessor on another rank. Preparing sorts the tasks of all ranks so that
// predecessors come first; after that, evaluating is one pass, with any costs, and allocates nothing.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

#include <cstdint>
#include <vector>

namespace tutti::schedule {

// Time in which a rank computes nothing, from 0 to the end of the step. What waiting for a message on its way takes,
// or sending one that blocks, or synchronising gradients, is communication; the rest lies before the rank's first
// backward (warm-up), after its last forward (cool-down), or between (steady).
struct IdleTime {
    double warm_up = 0, steady = 0, cool_down = 0, communication = 0;
    double total() const { return warm_up + steady + cool_down + communication; }
};

struct RankEvaluation {
    double first_start = 0;      // of its tasks
    double last_end = 0;         // of its tasks; synchronisation and update come after it
    double finish = 0;           // with these
    double busy = 0;             // computing, the update included
    double window_idle = 0;      // between first_start and last_end
    double peak_activations = 0; // in the unit of the costs
    IdleTime idle;
};

struct Evaluation {
    double time = 0;                // of the step: the makespan
    double bubble = 0;              // 1 - busy / (P · time)
    std::vector<double> start, end; // of every task, as in Schedule::tasks
    std::vector<RankEvaluation> ranks;

    double peak_activations() const; // over the ranks
    double window_idle() const;      // over the ranks, the largest
};

class Evaluator {
  public:
    explicit Evaluator(const Schedule& schedule); // Error where the order runs into a deadlock, naming the tasks

    // `into` keeps its memory between calls. The costs must have been checked.
    void evaluate(const Costs& costs, Evaluation& into);

    std::size_t tasks() const { return steps_.size(); }
    // Stages in the order in which their gradients are synchronised: the same on every rank.
    const std::vector<std::int32_t>& synchronisation_order() const { return synchronised_; }

  private:
    struct Step { // a task, in an order in which predecessors come first; four to a cache line
        std::int32_t task;
        std::int32_t sender; // the task whose message it waits for; one past the last where it waits for none
        std::uint16_t edge;  // of that message, in edges_
        std::uint16_t cost;  // in durations_
        std::uint16_t rank;
        std::uint16_t phase; // 0 warm-up, 1 steady, 2 cool-down; 3 the rank's first task
    };
    struct Clock { // of a rank, while evaluating
        double free = 0, busy = 0;
        double waiting[4] = {}, communicating[4] = {}; // per phase
    };
    void sort(const Schedule& schedule);
    void order_synchronisation(const Schedule& schedule);
    void read(const Costs& costs);
    template <bool blocking>
    void run(Evaluation& into);
    void finish(const Costs& costs, Evaluation& into);
    void replay_memory(Evaluation& into) const;

    ScheduleParameters parameters_;
    std::vector<std::int32_t> first_;
    std::vector<Step> steps_;
    std::vector<std::uint16_t> sends_;        // edge of the message that a task sends itself
    std::vector<std::uint16_t> cost_of_task_; // in the order of the schedule, for the memory replay
    std::vector<std::int32_t> last_gradient_; // per stage and replica, the task that finishes its gradients
    std::vector<std::int32_t> synchronised_;
    // Filled anew by every evaluation.
    std::vector<double> durations_, acquires_, releases_, edges_, lanes_;
    std::vector<Clock> clocks_;
};

// How long a task takes, what it takes hold of when it starts and lets go when it ends.
double duration_of(const StageCosts& stage, Work work, bool recomputes);
double acquired_by(const StageCosts& stage, Work work, bool recomputes);
double released_by(const StageCosts& stage, Work work);

Evaluation evaluate(const Schedule& schedule, const Costs& costs); // checks the costs

} // namespace tutti::schedule

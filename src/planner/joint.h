// The planner: the joint search beside what people would set by hand and beside choosing one thing after the other. The
// result is never slower than any of these, since they are candidates, too.
#pragma once

#include "planner/scaling.h"
#include "planner/search.h"

#include <vector>

namespace tutti::planner {

// Plans as people set them: Megatron's (tensor groups within the node, the fewest pipeline ranks that fit, 1F1B), the
// same with interleaved stages, and Merak's (shifted critical path, micro-batches in halves); data parallelism without
// any other, plain (DDP) and with ZeRO 1, 2 and 3. Stages of as many blocks each, the usual layout. Those that do not
// fit are left out. `all`, here and below: counts what was evaluated.
std::vector<RankedPlan> plans_by_hand(PlanModel& model, const ProgressListener& listener, SearchResult& all);

// Scaling first, as if for 1F1B; then splitting; then the schedule; then the assignment.
std::optional<RankedPlan> plan_in_stages(PlanModel& model, const ProgressListener& listener, SearchResult& all);

// The joint search without one of the four choices: with the staged plan's scaling, with equal stages, with 1F1B, with
// the usual layout.
std::vector<RankedPlan> ablations(PlanModel& model, const RankedPlan& staged, const ProgressListener& listener,
                                  SearchResult& all);

struct JointOptions {
    std::size_t kept = 10;
    SearchSpace space{};        // of the search; what is set here holds for no plan by hand
    bool by_hand = true;        // these are candidates, too
    bool compare = false;       // with the plan in stages and the ablations, which take as long again
    bool intra_operator = true; // with strategies of operators from intra-operator planning
    bool offload = true;        // and with model data in host memory
    ProgressListener listener{};
};

struct JointResult {
    SearchResult search{}; // its best first
    std::vector<RankedPlan> by_hand{};
    std::vector<RankedPlan> compared{}; // in stages, then without one of the choices

    bool fits() const { return !search.best.empty(); }
    bool stopped() const { return search.stopped; } // by the listener: there may be faster plans
    const RankedPlan& best() const { return search.best.front(); }
};

JointResult plan_jointly(PlanModel& model, const JointOptions& options);

} // namespace tutti::planner

// Scaling: how many replicas, pipeline ranks and tensor ranks, and the micro-batch, each with a layout of devices.
#pragma once

#include "planner/search.h"

namespace tutti::planner {

constexpr std::int64_t largest_micro_batch = 16; // that is tried

struct ScalingCandidate {
    PlanDecisions decisions{}; // scaling and layout
    std::int64_t micro_batches = 1;
    double bound = 0;         // no plan of it can be faster: its work, evenly over the ranks
    double pass = 0;          // of a micro-batch through the whole model, on the devices of one pipeline rank
    double update = 0;        // at least, of a step
    double communication = 0; // of gradients, if nothing hides it
};

// Those that memory and divisibility allow.
std::vector<ScalingCandidate> scaling_candidates(PlanModel& model, const SearchSpace& space);

// The ways of splitting operators that are tried, by tensor width; what intra-operator planning finds comes after them
// (pareto_strategies.h).
std::vector<TensorParallelism> tensor_parallel_menu(const PlanModel& model);

// The scaling law (T against the number D of pipeline ranks): with tau the time of a micro-batch through the model on
// one rank's devices, beta the schedule's idle coefficient, gamma the gradient reduction of the whole model, la the
// cost of a message: T(D) = work + beta tau (1 - 1/D) + gamma (1/D - 1/N) + 2 v la D. So fewer, shorter pipelines with
// more replicas win where beta tau >= gamma, and longer ones where not.
struct ScalingLaw {
    double tau = 0, gamma = 0, message = 0;
    bool replicates(double beta) const { return beta * tau >= gamma; }
};
ScalingLaw scaling_law(PlanModel& model, const PlanDecisions& decisions);

// Global batches near this one for which some scaling uses all devices.
std::vector<std::int64_t> nearest_batches(const PlanModel& model);

} // namespace tutti::planner

// Where no plan fits: the smallest changes that would do, each of them found by searching for a plan that fits, and
// none by a formula.
#pragma once

#include "planner/search.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::planner {

struct FittingChanges {
    std::optional<int> nodes{};    // the fewest found, of a cluster whose nodes are joined by links
    std::optional<int> devices{};  // the same of a single node
    std::optional<Bytes> memory{}; // the least that every device would need more
    bool moments = false;          // in bf16 would do
    bool master = false;           // moments and no master weights would do
    std::optional<Bytes> host{};   // memory of every node's host for model data, the least found
};

// `closest`: what the search that found nothing came closest with. What is not known after so many seconds
// of computing is left out.
FittingChanges changes_that_fit(const BlockChain& chain, const costs::Cluster& cluster, const PlannerWorkload& workload,
                                const PlannerOptions& options, const std::optional<RankedPlan>& closest,
                                double seconds);
// The same as the end of a sentence, after what is missing; empty where nothing was found.
std::string what_would_fit(const BlockChain& chain, const costs::Cluster& cluster, const PlannerWorkload& workload,
                           const PlannerOptions& options, const std::optional<RankedPlan>& closest, double seconds);

} // namespace tutti::planner

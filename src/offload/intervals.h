// The steps of planning a residency, in their order.
#pragma once

#include "offload/residency.h"

#include <optional>
#include <vector>

namespace tutti::offload {

// The uses of a problem by resident and by time point. Several uses of a resident at one time point are joined.
struct UseTable {
    explicit UseTable(const ResidencyProblem& problem);

    struct Use {
        std::int32_t time_point = 0, resident = 0;
        bool needs = false, changes = false; // content
        bool on_host = false;
    };
    std::vector<Use> uses;           // by time point
    std::vector<std::int32_t> first; // per time point its first use; one past the last at the end
    std::vector<std::vector<std::int32_t>> of_resident;
    std::vector<std::int32_t> place; // per use: in of_resident

    std::span<const Use> at(std::int32_t time_point) const;
    // The next of the same resident; the first again after the last.
    const Use& next(std::int32_t use) const;
};

// The interval from one use of a resident to a later one; use numbers from its number of uses on are those of the next
// step. Its content is fetched and written back if the uses need that.
ResidencyInterval interval_between(const ResidencyProblem& problem, const UseTable& table, std::int32_t resident,
                                   std::int32_t begin, std::int32_t end);

// Replays a step with this much memory and evicts by the problem's rule. The intervals have no offsets yet; those of
// residents that never leave are among them.
std::vector<ResidencyInterval> choose_intervals(const ResidencyProblem& problem, const UseTable& table, Bytes memory);

// Gives every interval an offset below the capacity, where memory has been free for longest; `issue` and `after`
// follow. False if memory is too fragmented.
bool place_intervals(const ResidencyProblem& problem, std::vector<ResidencyInterval>& intervals);

// The backing tier of every resident. Residents that the host works on are in host memory; so are the most copied of
// the others, as far as there is room. Among residents that are copied equally often, those on disk are spread over the
// step, so that the disk is never idle for long.
std::vector<BackingTier> choose_tiers(const ResidencyProblem& problem, const UseTable& table,
                                      const std::vector<ResidencyInterval>& intervals);

// Seconds of a step with its copies simulated, in the steady state.
double simulate_intervals(const ResidencyProblem& problem, const UseTable& table,
                          const std::vector<ResidencyInterval>& intervals, const std::vector<BackingTier>& tiers);

// A lower bound of the bytes that any plan copies: between two uses a resident either stays on the device, which takes
// its size for that long, or is copied. Memory times time limits how much can stay (a fractional knapsack).
Bytes least_copies(const ResidencyProblem& problem, const UseTable& table);

} // namespace tutti::offload

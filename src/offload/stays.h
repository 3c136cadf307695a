// The parts of planning a residency, in the order they are done.
#pragma once

#include "offload/residency.h"

#include <optional>
#include <vector>

namespace tutti::offload {

// The uses of a problem by resident and by moment: one for each, of several at once what they come to together.
struct UseTable {
    explicit UseTable(const ResidencyProblem& problem);

    struct Use {
        std::int32_t moment = 0, resident = 0;
        bool needs = false, changes = false; // content
        bool at_home = false;
    };
    std::vector<Use> uses;           // by moment
    std::vector<std::int32_t> first; // per moment its first use; one past the last at the end
    std::vector<std::vector<std::int32_t>> of_resident;
    std::vector<std::int32_t> place; // per use: in of_resident

    std::span<const Use> at(std::int32_t moment) const;
    // The next of the same resident; the first again after the last.
    const Use& next(std::int32_t use) const;
};

// From one use of a resident to a later one; from the number of its uses on: of the next step. Its content is fetched
// and returned where the uses ask for that.
Stay stay_between(const ResidencyProblem& problem, const UseTable& table, std::int32_t resident, std::int32_t begin,
                  std::int32_t end);

// Plays a step through with this much memory. Without offsets; `always` stays are among them.
std::vector<Stay> choose_stays(const ResidencyProblem& problem, const UseTable& table, Bytes memory);

// Gives every stay an offset below the capacity, the one that has been free for longest; with it `issue` and `after`.
// False where memory falls into pieces too small.
bool place_stays(const ResidencyProblem& problem, std::vector<Stay>& stays);

// Homes of residents. What is used at home is in host memory; of the rest the most copied ones, as far as there is
// room. Of those that are copied alike the ones on disk are spread over the step, so that the disk is idle for no long
// time.
std::vector<HomeTier> choose_homes(const ResidencyProblem& problem, const UseTable& table,
                                   const std::vector<Stay>& stays);

// How long a step takes when the copies take their time, after some steps of running in.
double walk_stays(const ResidencyProblem& problem, const UseTable& table, const std::vector<Stay>& stays,
                  const std::vector<HomeTier>& homes);

// Bytes that any plan copies. Between two uses a resident either stays, which takes its size for that long, or is
// copied; all the memory of a step holds only so much (a fractional knapsack).
Bytes least_copies(const ResidencyProblem& problem, const UseTable& table);

} // namespace tutti::offload

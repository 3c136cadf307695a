// Checks of a schedule, done before anything is computed with it. Each throws Error with the tasks and the rank.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

// Every forward, and every backward either whole or as input and weight gradient, exactly once, on the rank that owns
// its stage; a recompute exactly where a backward relies on one.
void check_complete(const Schedule& schedule);

// On its rank a task comes after what it needs: forwards before recomputes before backwards before weight gradients,
// and neighbouring stages that share the rank.
void check_dependencies(const Schedule& schedule);

// Messages between two ranks pass in order: receives are posted in the order of the peer's sends. A rank that sends
// goes on when the receive is posted, and of each peer `posted` receives are at a time, the next when the task that
// reads one has run. Whether all ranks come to their ends:
bool runs_through(const Schedule& schedule, int posted);
// The fewest receives that have to be posted per peer: the boundary buffers. Error where no number is enough.
int receives_posted(const Schedule& schedule);

// The most that a rank holds at a time, per rank; and Error where that is above the cap.
std::vector<double> peak_activations(const Schedule& schedule, const Costs& costs);
void check_memory(const Schedule& schedule, const Costs& costs, double cap);

// All of them, the cap being that of the parameters.
void check(const Schedule& schedule, const Costs& costs);

} // namespace tutti::schedule

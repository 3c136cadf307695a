// Binds the threads of a rank to the cores that it was assigned. The system then puts what a rank allocates on the
// memory node of the thread that writes to it first: on that of the rank.
#pragma once

#include "cores/assign.h"

#include <string>
#include <vector>

namespace tutti::cores {

// What was done for the ranks of a run, known to all of them.
struct Binding {
    std::vector<std::vector<int>> units{}; // of each rank; empty: it is not bound
    bool thread_each = false;              // every computing thread has a core of its own
    std::string why_not{};                 // nobody is bound
    bool operator==(const Binding&) const = default;
};
std::string describe(const Binding& binding);

// The calling thread, and with `whole_process` all others of its process, run on the rank's units from now on, and so
// do the threads that they start. The calling thread's OpenMP threads have one core each where that was assigned; it
// itself has all, for what it starts later is to run beside its computing.
void bind(const RankCores& cores, bool whole_process);

// The variable of OpenMP by which the user binds threads; empty where none is set.
std::string bound_by_user();

} // namespace tutti::cores

// Failures: an exception becomes a sentence for people and an exit status.
#pragma once

#include "comm/group.h"

#include <exception>

namespace tutti::launch {

// From here on a process also ends with a sentence and a status where an exception meets no handler, or a destructor
// throws, and where no memory is left to unwind the stack in.
void always_end_with_a_sentence();

comm::Failure failure_of(const std::exception_ptr& thrown);

// Prints the sentence to standard error, and gives the status back.
int tell(const comm::Failure& failure);
// For a rank that fails, or is stopped, and lets another tell it: an mpirun that sees it end first may drop what the
// other says.
int let_others_tell(const comm::Failure& failure);
// Either of them, and the process ends here: threads that still run, or MPI, which waits for all ranks, cannot keep it.
[[noreturn]] void end_process(const comm::Failure& failure, bool tells);

} // namespace tutti::launch

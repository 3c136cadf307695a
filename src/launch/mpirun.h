// tutti starts mpirun itself: its own command line on every rank, unbound, with what the ranks say passed on. mpirun
// neither kills ranks when one fails, since they end by themselves and tell who is to blame, nor does it say what their
// exit status was; so the ranks report it on standard error, in a line that goes no further.
#pragma once

#include "run/run_config.h"

namespace tutti::launch {

// A scheduler lent out machines to this job, and mpirun may find several.
bool has_lent_machines();
// Error where there is no mpirun, or where it could not work.
void check_mpirun(int ranks);
// In the process that starts mpirun: the exit status of the run. Signals that stop a run ask the ranks to stop, or end
// those that have not met; a second SIGINT or SIGTERM ends them all.
int run_mpirun(const run::RunConfig& config);
double
time_to_find_others(const run::RunConfig& config); // seconds; starting processes takes its time on a busy machine

// In a rank that tutti started:
void follow_launcher();              // ends with it
void report_to_launcher(int status); // once, by the rank that speaks
void report_meeting_to_launcher();   // by rank 0: from here on every rank heeds a request to stop

} // namespace tutti::launch

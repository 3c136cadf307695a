// tutti starts mpirun itself: its own command line on every rank, unbound, with what the ranks say passed on. mpirun
// neither kills ranks when one fails, since they end by themselves and tell who is to blame, nor does it say what their
// exit status was; so the ranks report it on standard error, in a line that goes no further.
#pragma once

#include "train/run_config.h"

#include <optional>

namespace tutti::cli {

// In the process that starts mpirun: the exit status of the run. SIGINT and SIGTERM ask the ranks to stop; a second
// one ends them. Error where there is no mpirun.
int run_mpirun(const RunConfig& config);

// In a rank that tutti started: the columns of the terminal that its output goes to, 0 where it goes elsewhere.
std::optional<int> launcher_columns();
void follow_launcher();              // ends with it
void report_to_launcher(int status); // once, by the rank that speaks

} // namespace tutti::cli

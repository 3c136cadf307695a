#include "launch/waiting_threads.h"

#include <unistd.h>

#include <cstdlib>

namespace tutti::launch {

void let_waiting_threads_sleep(char** words) {
    if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return; // the user's own, or set here before
    if (::setenv("OMP_WAIT_POLICY", "passive", 0) == 0) ::execv("/proc/self/exe", words);
    // Where that is not possible, threads spin.
}

} // namespace tutti::launch

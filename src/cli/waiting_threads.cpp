// Threads that wait for work sleep instead of spinning. OpenMP's threads wait for each other after every kernel; on a
// machine that is busy with something else, a spinning thread keeps the one it waits for off its core, and a step takes
// ten times as long. libgomp reads the setting when it is loaded, before main and before our constructors, so it is
// made where only an executable may run code that early. A user's own setting stands.
#include <cstdlib>

namespace {

void set_wait_policy(int, char**, char**) {
    if (!std::getenv("GOMP_SPINCOUNT")) setenv("OMP_WAIT_POLICY", "passive", 0);
}

} // namespace

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char**,
                                                                                       char**) = set_wait_policy;

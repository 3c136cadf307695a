// Threads that wait for work sleep instead of spinning. OpenMP's threads wait for each other after every kernel; on a
// machine that is busy with something else, a spinning thread keeps the one it waits for off its core, and a step takes
// ten times as long. libgomp reads the setting when it is loaded, long before main, so the program starts itself anew
// with it. A user's own setting stands.
#pragma once

namespace tutti::launch {

// Returns only in a process that has the setting, or cannot have it.
void let_waiting_threads_sleep(char** words);

} // namespace tutti::launch

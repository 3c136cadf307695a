#include "train/process_memory.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tutti {

Bytes resident_memory() {
    long pages = 0, resident = 0;
    if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
        std::fclose(file);
    }
    return {static_cast<std::int64_t>(resident) * ::sysconf(_SC_PAGESIZE)};
}

Bytes peak_resident_memory() {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    return {static_cast<std::int64_t>(usage.ru_maxrss) * 1024};
}

Bytes machine_memory() {
    return {static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE))};
}

int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

} // namespace tutti

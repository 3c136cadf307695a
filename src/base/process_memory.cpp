#include "base/process_memory.h"

#include "base/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

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

void forget_peak_memory() {
    if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
        std::fputs("5", file);
        std::fclose(file);
    }
}

Bytes machine_memory() {
    return {static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE))};
}

Bytes free_memory() {
    const Bytes free = left_memory(system_text).value_or(machine_memory());
    // For the system, whose lists of pages grow with what is taken: where pages are locked for a GPU's copies, by 1.5%.
    return free - Bytes{3 * free.count / 100};
}

} // namespace tutti

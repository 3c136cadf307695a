#include "train/process_memory.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

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

namespace {

// The number after a word at the start of a line of a file; nothing where there is none.
std::optional<std::int64_t> number_in(const char* path, const char* word) {
    std::optional<std::int64_t> found;
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) return found;
    char line[256];
    const std::size_t length = std::strlen(word);
    while (!found && std::fgets(line, sizeof line, file) != nullptr) {
        long long number = 0;
        if (std::strncmp(line, word, length) == 0 && std::sscanf(line + length, "%lld", &number) == 1) found = number;
    }
    std::fclose(file);
    return found;
}

} // namespace

Bytes free_memory() {
    const auto available = number_in("/proc/meminfo", "MemAvailable:");
    Bytes free = available ? Bytes{*available * 1024} : machine_memory();
    // A container's own limit.
    const auto limit = number_in("/sys/fs/cgroup/memory.max", ""),
               taken = number_in("/sys/fs/cgroup/memory.current", "");
    if (limit && taken) free = std::min(free, Bytes{std::max<std::int64_t>(*limit - *taken, 0)});
    // For the system, whose lists of pages grow with what is taken: where pages are locked for a GPU's copies, by 1.5%.
    return free - Bytes{3 * free.count / 100};
}

int usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

} // namespace tutti

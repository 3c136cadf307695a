#include "base/process_memory.h"

#include "base/free_memory.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

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

std::optional<std::string> text_of(const std::string& path) { // of a file of the system, which has no size
    std::FILE* file = std::fopen(path.c_str(), "r");
    if (file == nullptr) return std::nullopt;
    std::string text;
    char part[4096];
    for (std::size_t count = 0; (count = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, count);
    std::fclose(file);
    return text;
}

} // namespace

Bytes free_memory() {
    const Bytes free = left_memory(text_of).value_or(machine_memory());
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

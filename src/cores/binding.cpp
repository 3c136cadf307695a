#include "cores/binding.h"

#include "base/counted.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace tutti::cores {
namespace {

// A thread that has ended meanwhile needs no core.
void run_on(const std::vector<int>& units, pid_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int unit : units)
        if (unit < CPU_SETSIZE) CPU_SET(unit, &set);
    ::sched_setaffinity(thread, sizeof set, &set);
}

std::vector<pid_t> threads_of_process() {
    std::vector<pid_t> threads;
    std::error_code failed;
    for (std::filesystem::directory_iterator task("/proc/self/task", failed), end; !failed && task != end;
         task.increment(failed)) {
        const std::string name = task->path().filename().string();
        pid_t number = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc())
            threads.push_back(number);
    }
    return threads;
}

} // namespace

std::string describe(const Binding& binding) {
    if (!binding.why_not.empty()) return "the system places threads: " + binding.why_not;
    if (binding.units.size() == 1)
        return to_ranges(binding.units[0]) + (binding.thread_each ? ", a thread on each" : "");
    constexpr std::size_t most = 8; // are shown
    std::string text;
    for (std::size_t rank = 0; rank < std::min(most, binding.units.size()); ++rank)
        text += fmt::format("{}{}", rank > 0 ? "; " : "",
                            binding.units[rank].empty() ? "any" : to_ranges(binding.units[rank]));
    return fmt::format("of the ranks: {}{}{}", text, binding.units.size() > most ? "; ..." : "",
                       binding.thread_each ? "; a thread on each" : "");
}

void bind(const RankCores& cores, bool whole_process) {
    if (cores.units.empty()) return;
    usable_cores(); // from now on known as they were
    if (whole_process)
        for (const pid_t thread : threads_of_process()) run_on(cores.units, thread);
    run_on(cores.units, 0);
    const int count = static_cast<int>(cores.threads.size());
    if (count < 2) return;
        // The pool that all later parallel regions of this thread use.
#pragma omp parallel num_threads(count)
    if (const auto own = static_cast<std::size_t>(omp_get_thread_num()); own > 0 && own < cores.threads.size())
        run_on(cores.threads[own], 0);
}

std::string bound_by_user() {
    for (const char* name : std::array{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})
        if (std::getenv(name) != nullptr) return name;
    return "";
}

} // namespace tutti::cores

#include "cores/topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

namespace tutti::cores {
namespace {

struct Destroy {
    void operator()(hwloc_topology* topology) const { ::hwloc_topology_destroy(topology); }
};

Topology read_machine() {
    Topology found{.units = {}, .time = time_limit(system_text)};
    hwloc_topology_t opened = nullptr;
    if (::hwloc_topology_init(&opened) != 0) return found;
    const std::unique_ptr<hwloc_topology, Destroy> topology(opened);
    if (::hwloc_topology_load(opened) != 0) return found;
    const int count = ::hwloc_get_nbobjs_by_type(opened, HWLOC_OBJ_PU);
    for (int i = 0; i < count; ++i) { // neighbours in the machine follow each other
        const hwloc_obj_t unit = ::hwloc_get_obj_by_type(opened, HWLOC_OBJ_PU, static_cast<unsigned>(i));
        const hwloc_obj_t core = ::hwloc_get_ancestor_obj_by_type(opened, HWLOC_OBJ_CORE, unit);
        const int node = unit->nodeset ? ::hwloc_bitmap_first(unit->nodeset) : 0;
        found.units.push_back({.number = static_cast<int>(unit->os_index),
                               .core = core ? static_cast<int>(core->logical_index) : i,
                               .node = std::max(node, 0)});
    }
    return found;
}

std::vector<int> units_of(pid_t process) {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> units;
    if (::sched_getaffinity(process, sizeof set, &set) != 0) return units;
    for (int unit = 0; unit < CPU_SETSIZE; ++unit)
        if (CPU_ISSET(unit, &set)) units.push_back(unit);
    return units;
}

struct TimeFiles { // of a version of control groups: cores = limit / period, in one file or in two
    GroupVersion version;
    const char *limit, *period;
};
constexpr std::array<TimeFiles, 2> time_files = {
    {{GroupVersion::one, "/cpu.cfs_quota_us", "/cpu.cfs_period_us"}, {GroupVersion::two, "/cpu.max", nullptr}}};

// Of one folder; 0: no limit.
double time_limit_in(const TimeFiles& files, const std::string& folder, const SystemText& text) {
    const std::string limits = text(folder + files.limit).value_or("");
    const auto limit = number_after("", limits); // nothing for "max", -1 in version 1
    const std::string periods = files.period ? text(folder + files.period).value_or("")
                                             : limits.substr(std::min(limits.find(' '), limits.size()));
    const auto period = number_after("", periods);
    if (!limit || !period || *limit <= 0 || *period <= 0) return 0;
    return static_cast<double>(*limit) / static_cast<double>(*period);
}

} // namespace

const Topology& machine() {
    static const Topology known = read_machine();
    return known;
}

Topology within(const Topology& topology, const std::vector<int>& units) {
    Topology part{.units = {}, .time = topology.time};
    for (const Unit& unit : topology.units)
        if (std::ranges::count(units, unit.number) > 0) part.units.push_back(unit);
    return part;
}

int count_cores(const Topology& topology) {
    std::set<int> cores;
    for (const Unit& unit : topology.units) cores.insert(unit.core);
    const int count = static_cast<int>(cores.size());
    return std::max(1, topology.time > 0 ? std::min(count, static_cast<int>(topology.time)) : count);
}

int usable_cores() {
    static const int count = cores_of(0);
    return count;
}

int cores_of(int process) {
    const std::vector<int> units = units_of(process);
    const Topology part = within(machine(), units);
    return part.units.empty() ? std::max(1, static_cast<int>(units.size())) : count_cores(part);
}

std::vector<int> own_units() { return units_of(0); }

double time_limit(const SystemText& text) {
    double least = 0;
    for (const TimeFiles& files : time_files)
        for (const std::string& folder : group_folders(files.version, "cpu", text))
            if (const double limit = time_limit_in(files, folder, text); limit > 0)
                least = least > 0 ? std::min(least, limit) : limit;
    return least;
}

std::string to_ranges(std::vector<int> numbers) {
    std::ranges::sort(numbers);
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
        text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
        if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
        i = end;
    }
    return text;
}

} // namespace tutti::cores

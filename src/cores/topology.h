// Topology: the hardware threads of a machine, and to which cores and memory nodes they belong.
#pragma once

#include "base/control_groups.h"

#include <string>
#include <vector>

namespace tutti::cores {

// A hardware thread: a core has one of them or, with hyperthreading, several. `number` is the system's. Cores and
// memory nodes are counted over the machine, neighbours one after the other.
struct Unit {
    int number = 0, core = 0, node = 0;
    bool operator==(const Unit&) const = default;
};

struct Topology {
    std::vector<Unit> units{};
    double time = 0; // that a container gives, in cores; 0: no limit
    bool operator==(const Topology&) const = default;
};

// This machine, as hwloc sees it when it is first asked, with the time limit of this process's control group. No units
// where hwloc sees nothing.
const Topology& machine();
Topology within(const Topology& topology, const std::vector<int>& units); // of these alone
int count_cores(const Topology& topology);                                // with at least one unit, within the time

// The cores that this process could run on when it first asked, whatever it was bound to since.
int usable_cores();
// The same of another process, now: of that which started this one.
int cores_of(int process);

// The units that the calling thread may run on.
std::vector<int> own_units();

// How many cores' time the control group of this process, or one above it, allows; 0: no limit.
double time_limit(const SystemText& text);

std::string to_ranges(std::vector<int> numbers); // as in "0-3,8"

} // namespace tutti::cores

// Who computes on which cores: a pure function of a machine and of what its ranks ask for.
//
//   2 ranks of 4 threads on two sockets of 4 cores:   [0 0 0 0][1 1 1 1]
//   3 ranks of 2 threads on 8 cores:                  [0 0 1 1 1 2 2 2], a rank may use all of its share
//   2 ranks of 3 threads on 4 cores of 2 units:       [0 0|0 0][1 1|1 1], hyperthreads take what cores do not hold
#pragma once

#include "cores/topology.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cores {

enum class Bind {
    automatic, // every rank to a share of the cores, its threads to one each where they fill the share
    none,
    core, // every thread to a core
    numa, // every rank to the cores of its memory node
};
std::string_view name_of(Bind bind); // auto none core numa
std::optional<Bind> parse_bind(std::string_view name);

struct RankCores {
    std::vector<int> units{};                // on which the rank's threads may run; empty: where they like
    std::vector<std::vector<int>> threads{}; // the same of each computing thread; empty: on all of them
    bool operator==(const RankCores&) const = default;
};

struct Assignment {
    std::vector<RankCores> ranks{};
    std::string why_not{}; // nobody is bound
    bool operator==(const Assignment&) const = default;
};

// `threads`: of each rank. Ranks share no core while others idle, and neighbours are near each other; those that fit on
// a memory node stay on one. Hyperthreads are used when there are more threads than cores.
Assignment assign(const Topology& topology, std::span<const int> threads, Bind bind);

} // namespace tutti::cores

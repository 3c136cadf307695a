// The seconds of collectives and messages on a hierarchy of links. A group's cost depends on its shape alone: how many
// of its members share a node, how many of these nodes share a unit of the next level, and so on.
#pragma once

#include "base/speed.h"
#include "base/units.h"
#include "costs/cluster.h"
#include "program/program.h"

namespace tutti::costs {

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast };

std::string_view name_of(Collective what);
std::optional<Collective> parse_collective(std::string_view name);
// The collective that an instruction is. A chunk is gathered and reduced as any tensor is.
Collective collective_of(InstructionKind kind);

// Members per level, innermost first: {8, 4} is all 8 devices of each of 4 nodes, {1, 4} one device of each. Levels
// that are left out hold one.
struct GroupShape {
    std::vector<int> factors;

    int size() const;
    bool operator==(const GroupShape&) const = default;
};

// The shape of a group of devices, as Cluster::devices() numbers them. Where units hold unequal numbers of members, the
// most that one holds.
GroupShape shape_of(const Cluster& cluster, std::span<const ClusterDevice> devices, std::span<const int> members);

// Seconds; `bytes` are those of the whole tensor: what is summed, or what all have after a gather. It is assumed that
// every device of a unit is in a group of this shape at the same time (replicas, tensor groups: all are at it), so each
// has its share of what the unit has. A ring through everything, or level by level: the cheaper.
double collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, std::span<const LinkLevel> levels);

// The same of so many ranks on links that were measured together, as src/comm does it.
double collective_seconds(Collective what, Bytes bytes, int ranks, const LinkSpeed& speed);

// From a device to another whose lowest common level is `level`, while `senders` devices of its node send (0: all).
double message_seconds(Bytes bytes, int level, std::span<const LinkLevel> levels, int senders = 0);

} // namespace tutti::costs

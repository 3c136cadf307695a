// Cluster: devices in nodes, nodes in levels of links. A device is told by its number in hierarchy order: node by node,
// nodes of a level-1 unit beside each other, and so on.
#pragma once

#include "costs/device_kind.h"

#include <limits>

namespace tutti::costs {

// Nodes that are alike: one kind of device each.
struct NodeKind {
    DeviceKind device;
    int devices = 1;
    LinkSpeed link{};      // between two devices of a node, per device and direction
    Bytes host_memory{};   // of the node, shared by its devices
    LinkSpeed host_copy{}; // device to host and back, per device and direction
    bool operator==(const NodeKind&) const = default;
};

// What connects `size` units of the level beneath it. Level 0 is the node, and its units are devices.
struct LinkLevel {
    static constexpr double unlimited = std::numeric_limits<double>::infinity();

    std::string name;
    int size = 1;                  // of level 0: devices of the largest node
    LinkSpeed speed{};             // the most that one device gets, per direction; of level 0: the slowest node's
    double unit_bytes = unlimited; // per second and direction, what all devices of a unit have together
    int unit_devices = 1;          // devices of the largest unit beneath

    // What a device gets while this share of its unit's devices use the link.
    double bytes_per_device(double share = 1) const;
    bool operator==(const LinkLevel&) const = default;
};

struct ClusterDevice {
    int node = 0, index = 0; // index within the node
    int kind = 0;            // in Cluster::kinds
    bool operator==(const ClusterDevice&) const = default;
};

struct Cluster {
    std::string name;
    std::vector<NodeKind> kinds;
    std::vector<int> nodes;        // the kind of each, in hierarchy order
    std::vector<LinkLevel> levels; // innermost (node) first; a cluster of one node has only that

    int device_count() const;
    Bytes device_memory() const;  // of all devices together
    Bytes largest_memory() const; // of a device
    bool is_uniform() const { return kinds.size() == 1; }
    std::vector<ClusterDevice> devices() const;
    // Nodes of one unit of a level: 1 for level 0.
    int nodes_per_unit(int level) const;
    // The lowest level that holds both nodes; 0 where they are the same.
    int level_between_nodes(int a, int b) const;
    int level_between(const ClusterDevice& a, const ClusterDevice& b) const {
        return level_between_nodes(a.node, b.node);
    }
    // The levels as devices of a kind of node see them: level 0 with the links of that kind.
    std::vector<LinkLevel> levels_of(int kind) const;

    bool operator==(const Cluster&) const = default;
};

constexpr int most_devices = 1 << 16;

// Error saying what is wrong: no devices, levels that do not divide, speeds and sizes that are not positive.
void check(const Cluster& cluster);

// Nodes of one kind under one level of links; a level of its own only where there are several nodes.
Cluster uniform_cluster(const NodeKind& kind, int nodes, const LinkLevel& between);

// "128 nodes of 8 a100-80 (80.00 GiB): 1024 devices".
std::string describe(const Cluster& cluster);

} // namespace tutti::costs

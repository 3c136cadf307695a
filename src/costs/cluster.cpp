#include "costs/cluster.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace tutti::costs {
namespace {

void expect_positive(double value, std::string_view what) {
    if (!(value > 0) || !std::isfinite(value)) fail("{} is {}, and should be above 0", what, value);
}

void check_link(const LinkSpeed& link, const std::string& where) {
    expect_positive(link.bytes, "the bandwidth of " + where);
    if (!(link.latency >= 0) || !std::isfinite(link.latency))
        fail("the latency of {} is {} s, and should be 0 or more", where, link.latency);
}

void check(const NodeKind& kind) {
    const DeviceKind& device = kind.device;
    if (kind.devices < 1) fail("a node of {} has {} devices, and should have at least 1", device.name, kind.devices);
    if (kind.devices > most_devices)
        fail("a node of {} has {} devices; a cluster has at most {}", device.name, kind.devices, most_devices);
    if (device.memory.count <= 0) fail("{} has no memory", device.name);
    expect_positive(device.flops16, "flops16 of " + device.name);
    expect_positive(device.flops32, "flops32 of " + device.name);
    expect_positive(device.bandwidth, "the memory bandwidth of " + device.name);
    if (!(device.launch >= 0) || !std::isfinite(device.launch))
        fail("the launch time of {} is {} s, and should be 0 or more", device.name, device.launch);
    const Efficiency& share = device.efficiency;
    for (double one :
         {share.products, share.head, share.attention, share.attention_gradient, share.memory, share.optimizer})
        if (!(one > 0) || one > 1)
            fail("an efficiency of {} is {}, and should be above 0 and at most 1", device.name, one);
    if (kind.host_memory.count < 0) fail("a node of {} has negative host memory", device.name);
    check_link(kind.link, "the links within a node of " + device.name);
    check_link(kind.host_copy, "copies between host and " + device.name);
}

// The numbers below `units` that divide it and are nearest to `size`.
std::string nearest_divisors(int units, int size) {
    int below = std::min(size, units), above = size;
    while (below > 1 && units % below != 0) --below;
    while (above < units && units % above != 0) ++above;
    above = std::min(above, units);
    return below == above ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

} // namespace

double LinkLevel::bytes_per_device(double share) const {
    return std::min(speed.bytes, unit_bytes / std::max(1.0, share * unit_devices));
}

Bytes Cluster::device_memory() const {
    Bytes all;
    for (int kind : nodes)
        all += kinds[static_cast<std::size_t>(kind)].devices * kinds[static_cast<std::size_t>(kind)].device.memory;
    return all;
}

Bytes Cluster::largest_memory() const {
    Bytes largest;
    for (const NodeKind& kind : kinds) largest = std::max(largest, kind.device.memory);
    return largest;
}

int Cluster::device_count() const {
    int count = 0;
    for (int kind : nodes) count += kinds[static_cast<std::size_t>(kind)].devices;
    return count;
}

std::vector<ClusterDevice> Cluster::devices() const {
    std::vector<ClusterDevice> all;
    for (std::size_t node = 0; node < nodes.size(); ++node)
        for (int i = 0; i < kinds[static_cast<std::size_t>(nodes[node])].devices; ++i)
            all.push_back({static_cast<int>(node), i, nodes[node]});
    return all;
}

int Cluster::nodes_per_unit(int level) const {
    int count = 1;
    for (int i = 1; i <= level; ++i) count *= levels[static_cast<std::size_t>(i)].size;
    return count;
}

int Cluster::level_between_nodes(int a, int b) const {
    int level = 0;
    while (a != b) {
        ++level;
        a /= levels[static_cast<std::size_t>(level)].size;
        b /= levels[static_cast<std::size_t>(level)].size;
    }
    return level;
}

std::vector<LinkLevel> Cluster::levels_of(int kind) const {
    std::vector<LinkLevel> seen = levels;
    seen[0].speed = kinds[static_cast<std::size_t>(kind)].link;
    return seen;
}

void check(const Cluster& cluster) {
    if (cluster.nodes.empty() || cluster.kinds.empty()) fail("the cluster has no devices");
    if (cluster.nodes.size() > most_devices)
        fail("the cluster has {} nodes, and may have at most {} devices", cluster.nodes.size(), most_devices);
    for (const NodeKind& kind : cluster.kinds) check(kind);
    std::int64_t devices = 0;
    for (int kind : cluster.nodes) {
        TUTTI_CHECK(kind >= 0 && kind < static_cast<int>(cluster.kinds.size()), "a node is of kind {}", kind);
        devices += cluster.kinds[static_cast<std::size_t>(kind)].devices;
    }
    if (devices > most_devices) fail("the cluster has {} devices, and may have at most {}", devices, most_devices);
    TUTTI_CHECK(!cluster.levels.empty(), "a cluster without the level of its nodes");
    auto units = static_cast<int>(cluster.nodes.size());
    for (std::size_t i = 1; i < cluster.levels.size(); ++i) {
        const LinkLevel& level = cluster.levels[i];
        if (level.size < 1) fail("level {} joins {} units, and should join at least 1", level.name, level.size);
        if (units % level.size != 0)
            fail("level {} joins {} {} each, which does not divide the {} there are; {} would", level.name, level.size,
                 i == 1 ? "nodes" : "units", units, nearest_divisors(units, level.size));
        units /= level.size;
        check_link(level.speed, "level " + level.name);
        if (!(level.unit_bytes > 0)) fail("level {} has no bandwidth", level.name);
    }
    if (units > 1)
        fail("the levels leave {} units apart from each other: a last level should join {}, or leave out its size",
             units, units);
}

Cluster uniform_cluster(const NodeKind& kind, int nodes, const LinkLevel& between) {
    Cluster cluster{.name = {},
                    .kinds = {kind},
                    .nodes = std::vector<int>(static_cast<std::size_t>(nodes), 0),
                    .levels = {{.name = "node", .size = kind.devices, .speed = kind.link}}};
    if (nodes > 1) {
        cluster.levels.push_back(between);
        cluster.levels.back().size = nodes;
        cluster.levels.back().unit_devices = kind.devices;
    }
    check(cluster);
    return cluster;
}

std::string describe(const Cluster& cluster) {
    std::string text;
    for (std::size_t i = 0; i < cluster.kinds.size(); ++i) {
        const NodeKind& kind = cluster.kinds[i];
        const auto count = std::ranges::count(cluster.nodes, static_cast<int>(i));
        text += fmt::format("{}{} node{} of {} {} ({})", text.empty() ? "" : " and ", count, count == 1 ? "" : "s",
                            kind.devices, kind.device.name, to_string(kind.device.memory));
    }
    const int devices = cluster.device_count();
    return fmt::format("{}: {} device{}", text, devices, devices == 1 ? "" : "s");
}

} // namespace tutti::costs

#include "planner/cluster_sizes.h"

#include "base/error.h"

#include <algorithm>
#include <functional>

namespace tutti::planner {
namespace {

int devices_of_unit(const costs::Cluster& cluster, int nodes) {
    int most = 0;
    for (std::size_t first = 0; first < cluster.nodes.size(); first += static_cast<std::size_t>(nodes)) {
        int devices = 0;
        const std::size_t end = std::min(cluster.nodes.size(), first + static_cast<std::size_t>(nodes));
        for (std::size_t i = first; i < end; ++i)
            devices += cluster.kinds[static_cast<std::size_t>(cluster.nodes[i])].devices;
        most = std::max(most, devices);
    }
    return most;
}

int kind_with_most_memory(const costs::Cluster& cluster) {
    return static_cast<int>(
        std::ranges::max_element(cluster.kinds, {},
                                 [](const costs::NodeKind& kind) { return kind.devices * kind.device.memory; }) -
        cluster.kinds.begin());
}

// The same nodes with more or fewer devices each.
std::optional<costs::Cluster> with_scaled_nodes(const costs::Cluster& cluster, const std::function<int(int)>& whole) {
    costs::Cluster other = cluster;
    for (costs::NodeKind& kind : other.kinds)
        if (kind.devices = whole(kind.devices); kind.devices == 0) return std::nullopt;
    other.levels.front().size = std::ranges::max(other.kinds, {}, &costs::NodeKind::devices).devices;
    return with_nodes(other, other.nodes);
}

} // namespace

costs::Cluster with_nodes(const costs::Cluster& cluster, std::vector<int> nodes) {
    costs::Cluster other = cluster;
    other.nodes = std::move(nodes);
    other.levels.resize(1);
    int units = static_cast<int>(other.nodes.size()), beneath = 1;
    if (units > 1 && cluster.levels.size() < 2)
        fail("{} has one node, and no level of links that would join another",
             cluster.name.empty() ? "the cluster" : cluster.name);
    for (std::size_t i = 1; i < cluster.levels.size() && units > 1; ++i) {
        costs::LinkLevel level = cluster.levels[i];
        if (i + 1 == cluster.levels.size() || units <= level.size || units % level.size != 0) level.size = units;
        level.unit_devices = devices_of_unit(other, beneath);
        beneath *= level.size;
        units /= level.size;
        other.levels.push_back(std::move(level));
    }
    costs::check(other);
    return other;
}

costs::Cluster with_node_count(const costs::Cluster& cluster, int nodes) {
    std::vector<int> kinds = cluster.nodes;
    const int kind = kind_with_most_memory(cluster);
    while (static_cast<int>(kinds.size()) > nodes) {
        const auto last = std::ranges::find(kinds.rbegin(), kinds.rend(), kind);
        if (last == kinds.rend()) break;
        kinds.erase(std::next(last).base());
    }
    kinds.resize(std::max(kinds.size(), static_cast<std::size_t>(nodes)), kind);
    return with_nodes(cluster, std::move(kinds));
}

costs::Cluster with_devices(const costs::Cluster& cluster, int devices) {
    TUTTI_CHECK(cluster.nodes.size() == 1, "{} nodes", cluster.nodes.size());
    costs::Cluster other = cluster;
    other.kinds = {cluster.kinds[static_cast<std::size_t>(cluster.nodes.front())]};
    other.nodes = {0};
    other.kinds.front().devices = devices;
    other.levels.resize(1);
    other.levels.front().size = devices;
    costs::check(other);
    return other;
}

std::optional<costs::Cluster> scaled(const costs::Cluster& cluster, int times, int divided_by) {
    auto whole = [&](int count) { return count * times % divided_by == 0 ? count * times / divided_by : 0; };
    if (cluster.nodes.size() == 1) {
        const int devices = whole(cluster.device_count());
        return devices > 0 ? std::optional(with_devices(cluster, devices)) : std::nullopt;
    }
    std::vector<int> nodes;
    for (std::size_t first = 0, end = 0; first < cluster.nodes.size(); first = end) {
        while (end < cluster.nodes.size() && cluster.nodes[end] == cluster.nodes[first]) ++end;
        const int count = whole(static_cast<int>(end - first));
        if (count == 0) return cluster.is_uniform() ? std::nullopt : with_scaled_nodes(cluster, whole);
        nodes.insert(nodes.end(), static_cast<std::size_t>(count), cluster.nodes[first]);
    }
    return with_nodes(cluster, std::move(nodes));
}

std::vector<costs::Cluster> sizes_around(const costs::Cluster& cluster) {
    std::vector<costs::Cluster> sizes;
    for (const auto& [times, divided_by] : {std::pair(1, 4), {1, 2}, {1, 1}, {3, 2}, {2, 1}})
        if (times == divided_by)
            sizes.push_back(cluster);
        else if (auto other = scaled(cluster, times, divided_by))
            sizes.push_back(std::move(*other));
    return sizes;
}

costs::Cluster with_more_memory(const costs::Cluster& cluster, Bytes more) {
    costs::Cluster other = cluster;
    for (costs::NodeKind& kind : other.kinds) kind.device.memory += more;
    return other;
}

costs::Cluster with_memory_cap(const costs::Cluster& cluster, Bytes most) {
    costs::Cluster other = cluster;
    for (costs::NodeKind& kind : other.kinds) kind.device.memory = std::min(kind.device.memory, most);
    return other;
}

} // namespace tutti::planner

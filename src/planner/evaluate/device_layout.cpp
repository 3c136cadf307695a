#include "planner/evaluate/device_layout.h"

#include "base/counted.h"
#include "base/error.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace tutti::planner {
namespace {

// Nodes that could stand for each other.
bool has_equal_nodes(const costs::Cluster& cluster) {
    return std::ranges::all_of(cluster.nodes, [&](int kind) { return kind == cluster.nodes.front(); });
}

void divide(const costs::Cluster& cluster, std::size_t level, AxisFactors rest, std::vector<AxisFactors>& so_far,
            std::vector<DeviceLayout>& found) {
    const int size = cluster.levels[level].size;
    if (level + 1 == cluster.levels.size()) {
        if (rest.size() > size) return;
        so_far.push_back(rest);
        found.push_back({.factors = so_far});
        so_far.pop_back();
        return;
    }
    for (int t = rest.tensor; t >= 1; --t) {
        if (rest.tensor % t != 0 || t > size) continue;
        for (int d = rest.data; d >= 1; --d) {
            if (rest.data % d != 0 || t * d > size) continue;
            for (int p = rest.pipe; p >= 1; --p) {
                const AxisFactors here{t, d, p}, left{rest.tensor / t, rest.data / d, rest.pipe / p};
                // Units are used as a whole, unless there is nothing left for others.
                if (rest.pipe % p != 0 || here.size() > size || (here.size() < size && left.size() > 1)) continue;
                so_far.push_back(here);
                divide(cluster, level + 1, left, so_far, found);
                so_far.pop_back();
            }
        }
    }
}

std::vector<DeviceLayout> matrices(const costs::Cluster& cluster, const sharding::Mesh& mesh) {
    std::vector<DeviceLayout> found;
    std::vector<AxisFactors> so_far;
    divide(cluster, 0, {mesh.tensor, mesh.data, mesh.pipe}, so_far, found);
    return found;
}

// Orders of nodes that differ by what kinds come when.
std::vector<std::vector<int>> node_orders(const costs::Cluster& cluster) {
    constexpr std::size_t most = 64;
    std::vector<int> nodes(cluster.nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    std::vector<std::vector<int>> orders = {nodes};
    std::set<std::vector<int>> seen = {cluster.nodes};
    auto add = [&](const std::vector<int>& kinds) {
        if (!seen.insert(kinds).second) return;
        std::vector<std::vector<int>> of_kind(cluster.kinds.size());
        for (std::size_t n = nodes.size(); n-- > 0;)
            of_kind[static_cast<std::size_t>(cluster.nodes[n])].push_back(static_cast<int>(n));
        std::vector<int> order;
        for (int kind : kinds) {
            order.push_back(of_kind[static_cast<std::size_t>(kind)].back());
            of_kind[static_cast<std::size_t>(kind)].pop_back();
        }
        orders.push_back(std::move(order));
    };
    std::vector<int> kinds = cluster.nodes;
    std::ranges::sort(kinds);
    std::vector<int> sorted = kinds;
    std::size_t tried = 0;
    do {
        if (++tried > most) break;
        add(sorted);
    } while (std::ranges::next_permutation(sorted).found);
    if (tried <= most) return orders;
    // Too many: runs of one kind, each at every place among the others.
    for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
        std::vector<int> others, own;
        for (int kind : kinds) (kind == static_cast<int>(k) ? own : others).push_back(kind);
        for (std::size_t at = 0; at <= others.size(); ++at) {
            std::vector<int> mixed = others;
            mixed.insert(mixed.begin() + static_cast<std::ptrdiff_t>(at), own.begin(), own.end());
            add(mixed);
        }
    }
    return orders;
}

int in_factors(const costs::Cluster& cluster, const DeviceLayout& layout, sharding::MeshPlace place) {
    int device = 0, unit = 1;
    for (std::size_t level = 0; level < layout.factors.size(); ++level) {
        const AxisFactors& here = layout.factors[level];
        const int local =
            place.tensor % here.tensor + here.tensor * (place.data % here.data + here.data * (place.pipe % here.pipe));
        device += local * unit;
        unit *= cluster.levels[level].size;
        place = {place.pipe / here.pipe, place.data / here.data, place.tensor / here.tensor};
    }
    return device;
}

std::vector<int> in_order(const costs::Cluster& cluster, const DeviceLayout& layout) {
    std::vector<std::vector<int>> of_node(cluster.nodes.size());
    const std::vector<costs::ClusterDevice> devices = cluster.devices();
    for (std::size_t d = 0; d < devices.size(); ++d)
        of_node[static_cast<std::size_t>(devices[d].node)].push_back(static_cast<int>(d));
    std::vector<int> order;
    for (std::size_t n = 0; n < of_node.size(); ++n) {
        const std::vector<int>& next = of_node[layout.nodes.empty() ? n : static_cast<std::size_t>(layout.nodes[n])];
        order.insert(order.end(), next.begin(), next.end());
    }
    return order;
}

PlacedRanks from_factors(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout) {
    PlacedRanks placed;
    for (const AxisFactors& here : layout.factors) {
        placed.shapes.tensor.factors.push_back(here.tensor);
        placed.shapes.data.factors.push_back(here.data);
    }
    placed.kinds.assign(static_cast<std::size_t>(mesh.pipe), {cluster.nodes.front()});
    placed.senders = layout.factors.front().tensor * layout.factors.front().data;
    std::vector<int> units(static_cast<std::size_t>(mesh.pipe));
    placed.levels.assign(units.size() * units.size(), 0);
    int inside = 1;
    for (std::size_t level = 0; level < layout.factors.size(); ++level) {
        inside *= layout.factors[level].pipe;
        for (int a = 0; a < mesh.pipe; ++a)
            for (int b = 0; b < mesh.pipe; ++b)
                if (a / inside != b / inside)
                    placed.levels[static_cast<std::size_t>(a * mesh.pipe + b)] = static_cast<int>(level) + 1;
    }
    return placed;
}

// Of several groups along an axis, the shape that spreads furthest.
costs::GroupShape widest(const costs::Cluster& cluster, std::span<const costs::ClusterDevice> devices,
                         const std::vector<std::vector<int>>& groups) {
    costs::GroupShape widest;
    for (const std::vector<int>& group : groups) {
        costs::GroupShape shape = costs::shape_of(cluster, devices, group);
        const bool wider = widest.factors.empty() ||
                           std::ranges::lexicographical_compare(widest.factors.rbegin(), widest.factors.rend(),
                                                                shape.factors.rbegin(), shape.factors.rend());
        if (wider) widest = std::move(shape);
    }
    return widest;
}

struct NodeDevice {
    int node = 0;
    std::string kind;
};

std::vector<NodeDevice> devices_of(const PlannedDevices& planned) {
    std::vector<NodeDevice> devices;
    int node = 0;
    for (const PlannedNodes& alike : planned.nodes)
        for (int n = 0; n < alike.nodes; ++n, ++node)
            devices.insert(devices.end(), static_cast<std::size_t>(alike.devices), {node, alike.kind});
    return devices;
}

// Each rank's device has to be there, of its kind and in its node: links follow from that.
void check_devices(const costs::Cluster& cluster, const PlannedDevices& planned) {
    const std::vector<NodeDevice> meant = devices_of(planned);
    const std::vector<costs::ClusterDevice> here = cluster.devices();
    constexpr const char* advice = "plan for this cluster, or take devices out of the plan to fill it in order";
    for (std::size_t rank = 0; rank < planned.ranks.size(); ++rank) {
        const auto number = static_cast<std::size_t>(planned.ranks[rank]);
        const NodeDevice& wanted = meant[number];
        if (number >= here.size())
            fail("the plan has rank {} on device {}, and the cluster has {}, counted from 0: {}", rank, number,
                 counted(std::ssize(here), "device"), advice);
        const std::string& kind = cluster.kinds[static_cast<std::size_t>(here[number].kind)].device.name;
        if (kind != wanted.kind || here[number].node != wanted.node)
            fail("the plan has rank {} on device {}, {} in node {}, which is {} in node {} of the cluster: {}", rank,
                 number, wanted.kind, wanted.node, kind, here[number].node, advice);
    }
}

} // namespace

std::vector<int> devices_of(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout) {
    if (!layout.devices.empty()) return layout.devices;
    std::vector<int> devices;
    const std::vector<int> order = layout.factors.empty() ? in_order(cluster, layout) : std::vector<int>{};
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const sharding::MeshPlace place = mesh.place_of(rank);
        if (!layout.factors.empty()) {
            devices.push_back(in_factors(cluster, layout, place));
            continue;
        }
        const int outer =
            layout.data_outermost ? place.data * mesh.pipe + place.pipe : place.pipe * mesh.data + place.data;
        devices.push_back(order[static_cast<std::size_t>(outer * mesh.tensor + place.tensor)]);
    }
    return devices;
}

GroupShapes PlacedRanks::with_model_replicas(int model_replicas) const {
    GroupShapes wider = shapes;
    if (model_replicas <= 1) return wider;
    const auto between = static_cast<std::size_t>(level(0, static_cast<int>(kinds.size()) - 1));
    std::vector<int>& factors = wider.data.factors;
    if (factors.size() <= between) factors.resize(between + 1, 1);
    factors[between] *= model_replicas;
    return wider;
}

PlacedRanks place_ranks(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout) {
    if (!layout.factors.empty()) return from_factors(cluster, mesh, layout);
    const std::vector<int> ranks = devices_of(cluster, mesh, layout);
    const std::vector<costs::ClusterDevice> devices = cluster.devices();
    auto device = [&](int p, int d, int t) { return ranks[static_cast<std::size_t>(mesh.rank_of({p, d, t}))]; };
    PlacedRanks placed;
    std::vector<std::vector<int>> tensor, data;
    placed.kinds.resize(static_cast<std::size_t>(mesh.pipe));
    for (int p = 0; p < mesh.pipe; ++p) {
        std::set<int> kinds;
        for (int d = 0; d < mesh.data; ++d) {
            std::vector<int>& group = tensor.emplace_back();
            for (int t = 0; t < mesh.tensor; ++t) group.push_back(device(p, d, t));
            for (int one : group) kinds.insert(devices[static_cast<std::size_t>(one)].kind);
        }
        for (int t = 0; t < mesh.tensor; ++t) {
            std::vector<int>& group = data.emplace_back();
            for (int d = 0; d < mesh.data; ++d) group.push_back(device(p, d, t));
        }
        placed.kinds[static_cast<std::size_t>(p)].assign(kinds.begin(), kinds.end());
    }
    placed.shapes = {widest(cluster, devices, tensor), widest(cluster, devices, data)};
    for (int a = 0; a < mesh.pipe; ++a)
        for (int b = 0; b < mesh.pipe; ++b)
            placed.levels.push_back(a == b ? 0
                                           : cluster.level_between(devices[static_cast<std::size_t>(device(a, 0, 0))],
                                                                   devices[static_cast<std::size_t>(device(b, 0, 0))]));
    placed.senders = std::min(mesh.tensor * mesh.data, cluster.levels.front().size);
    return placed;
}

PlannedDevices planned_devices(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout) {
    PlannedDevices planned{.ranks = devices_of(cluster, mesh, layout)};
    for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
        const costs::NodeKind& kind = cluster.kinds[static_cast<std::size_t>(cluster.nodes[node])];
        if (node == 0 || cluster.nodes[node] != cluster.nodes[node - 1])
            planned.nodes.push_back({kind.device.name, 0, kind.devices});
        ++planned.nodes.back().nodes;
    }
    return planned;
}

DeviceLayout layout_of(const costs::Cluster& cluster, const sharding::Mesh& mesh, const PlannedDevices& planned) {
    check_devices(cluster, planned);
    for (DeviceLayout& one : all_layouts(cluster, mesh))
        if (devices_of(cluster, mesh, one) == planned.ranks) return std::move(one);
    return {.devices = planned.ranks};
}

DeviceLayout usual_layout(const costs::Cluster& cluster, const sharding::Mesh& mesh) {
    if (!has_equal_nodes(cluster)) return {};
    std::vector<DeviceLayout> all = matrices(cluster, mesh);
    if (all.empty()) return {};
    // As much of the tensor axis as can be within the lowest level, then of the data axis.
    return *std::ranges::max_element(all, [](const DeviceLayout& a, const DeviceLayout& b) {
        auto key = [](const DeviceLayout& layout) {
            std::vector<int> sizes;
            for (const AxisFactors& here : layout.factors)
                sizes.insert(sizes.end(), {here.tensor, here.data, here.pipe});
            return sizes;
        };
        return key(a) < key(b);
    });
}

std::vector<DeviceLayout> all_layouts(const costs::Cluster& cluster, const sharding::Mesh& mesh) {
    std::vector<DeviceLayout> candidates = {usual_layout(cluster, mesh)};
    if (has_equal_nodes(cluster)) {
        for (DeviceLayout& one : matrices(cluster, mesh)) candidates.push_back(std::move(one));
    } else {
        for (const std::vector<int>& nodes : node_orders(cluster))
            for (const bool data_outermost : {false, true})
                candidates.push_back({.nodes = nodes, .data_outermost = data_outermost});
    }
    std::vector<DeviceLayout> different;
    std::vector<PlacedRanks> seen;
    for (DeviceLayout& one : candidates) {
        PlacedRanks placed = place_ranks(cluster, mesh, one);
        if (std::ranges::find(seen, placed) != seen.end()) continue;
        seen.push_back(std::move(placed));
        different.push_back(std::move(one));
    }
    return different;
}

std::string describe(const costs::Cluster& cluster, const DeviceLayout& layout) {
    std::string text;
    for (std::size_t level = 0; level < layout.factors.size(); ++level) {
        const AxisFactors& here = layout.factors[level];
        std::string inside;
        for (const auto& [name, size] :
             {std::pair("tensor", here.tensor), std::pair("data", here.data), std::pair("pipe", here.pipe)})
            if (size > 1) inside += fmt::format("{}{}={}", inside.empty() ? "" : " ", name, size);
        if (inside.empty()) continue;
        text += fmt::format("{}{} within {}", text.empty() ? "" : ", ", inside,
                            level == 0 ? "a node" : cluster.levels[level].name);
    }
    if (!text.empty() || !layout.factors.empty()) return text.empty() ? "one device" : text;
    if (!layout.devices.empty()) return "as the plan lists its devices";
    text = layout.data_outermost ? "replica by replica" : "pipeline rank by pipeline rank";
    if (!layout.nodes.empty()) {
        text += ", nodes";
        for (int node : layout.nodes) text += fmt::format(" {}", node);
    }
    return text;
}

} // namespace tutti::planner

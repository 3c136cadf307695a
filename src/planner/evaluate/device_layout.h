// DeviceLayout: which physical device takes which logical rank. On a cluster of equal nodes it is a matrix of factors:
// how much of the tensor, data and pipe axis lies within one unit of each level of links. Where nodes differ, it is the
// order in which they are filled, and which axis comes outermost.
#pragma once

#include "costs/cluster.h"
#include "plan/plan.h"
#include "planner/evaluate/segments.h"
#include "sharding/mesh.h"

#include <string>
#include <vector>

namespace tutti::planner {

struct AxisFactors {
    int tensor = 1, data = 1, pipe = 1;
    int size() const { return tensor * data * pipe; }
    bool operator==(const AxisFactors&) const = default;
};

struct DeviceLayout {
    std::vector<AxisFactors> factors{}; // per level, innermost first; empty: nodes are filled one after the other
    std::vector<int> nodes{};           // in this order; empty: as they come
    bool data_outermost = false;        // then: replica by replica, not pipeline rank by pipeline rank
    std::vector<int> devices{};         // of the ranks, in no such order; empty: as above

    bool operator==(const DeviceLayout&) const = default;
};

// The ranks of a mesh on the devices of a layout: which kinds they are, and which links join them.
struct PlacedRanks {
    GroupShapes shapes;
    std::vector<std::vector<int>> kinds; // per pipeline rank: the kinds of node that its devices are of
    std::vector<int> levels;             // between pipeline ranks: pipe x pipe
    int senders = 0;                     // devices of a node that send to another pipeline rank at once

    int level(int from, int to) const {
        return levels[static_cast<std::size_t>(from) * kinds.size() + static_cast<std::size_t>(to)];
    }
    // The shapes with several model replicas: mirrored pipeline ranks own the same stages, as data replicas do.
    GroupShapes with_model_replicas(int model_replicas) const;
    bool operator==(const PlacedRanks&) const = default;
};

// Per logical rank of the mesh: the device, as Cluster::devices() numbers them.
std::vector<int> devices_of(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout);
PlacedRanks place_ranks(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout);

// The same as a plan keeps it.
PlannedDevices planned_devices(const costs::Cluster& cluster, const sharding::Mesh& mesh, const DeviceLayout& layout);

// The way back: the layout that a plan was made with, or its list of devices where it is of no such order. Error where
// the cluster has other devices at these numbers.
DeviceLayout layout_of(const costs::Cluster& cluster, const sharding::Mesh& mesh, const PlannedDevices& planned);

// The one that people take: tensor groups beside each other, then replicas, then pipeline ranks.
DeviceLayout usual_layout(const costs::Cluster& cluster, const sharding::Mesh& mesh);
// All that differ, the usual one first. Of very many orders of unequal nodes, those that keep equal ones together.
std::vector<DeviceLayout> all_layouts(const costs::Cluster& cluster, const sharding::Mesh& mesh);

std::string describe(const costs::Cluster& cluster, const DeviceLayout& layout);

} // namespace tutti::planner

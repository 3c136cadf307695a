// Clusters like a given one, of other sizes: for curves over the number of devices, and for finding what would fit.
#pragma once

#include "costs/cluster.h"

#include <optional>
#include <vector>

namespace tutti::planner {

// With these nodes. Units of links stay what they are as far as the number lets them; the last level joins the rest.
// Error where there is no level of links between nodes.
costs::Cluster with_nodes(const costs::Cluster& cluster, std::vector<int> nodes);
// More or fewer nodes of the kind that has most memory; the others stay.
costs::Cluster with_node_count(const costs::Cluster& cluster, int nodes);
// One node of so many devices.
costs::Cluster with_devices(const costs::Cluster& cluster, int devices);
// As many times the nodes, of every kind; of a single node the devices, and of unequal ones where nodes make no whole
// number. None where devices make none either.
std::optional<costs::Cluster> scaled(const costs::Cluster& cluster, int times, int divided_by);
// A quarter, half, once, one and a half times and twice, as far as they exist, by rising number of devices.
std::vector<costs::Cluster> sizes_around(const costs::Cluster& cluster);
// Devices with this much memory more, all of them.
costs::Cluster with_more_memory(const costs::Cluster& cluster, Bytes more);
// Devices of which at most this much may be taken.
costs::Cluster with_memory_cap(const costs::Cluster& cluster, Bytes most);

} // namespace tutti::planner

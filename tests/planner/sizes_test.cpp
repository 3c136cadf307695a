// Clusters of other sizes, and the smallest change with which a model fits.
#include "planner/cluster_sizes.h"

#include "base/error.h"
#include "ops/operators.h"
#include "planner/joint.h"
#include "planner/smallest_change.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
using namespace models;
using namespace ops;
using namespace planner;
namespace {

NodeKind sized_node(int devices, double gigabytes) {
    NodeKind kind;
    kind.device = *find_device_preset("a100-80");
    kind.device.memory = {static_cast<std::int64_t>(gigabytes * 1e9)};
    kind.devices = devices;
    kind.link = {.latency = 5e-6, .bytes = 5e9};
    return kind;
}

Cluster cluster_of(int nodes, int devices, double gigabytes) {
    return uniform_cluster(sized_node(devices, gigabytes), nodes,
                           {.name = "fabric", .speed = {.latency = 1e-5, .bytes = 1e9}});
}

std::vector<int> counts(const std::vector<Cluster>& clusters) {
    std::vector<int> found;
    for (const Cluster& one : clusters) found.push_back(one.device_count());
    return found;
}

TEST(ClusterSizes, NodesOrTheDevicesOfASingleOne) {
    EXPECT_EQ(counts(sizes_around(cluster_of(8, 4, 1))), (std::vector{8, 16, 32, 48, 64}));
    EXPECT_EQ(counts(sizes_around(cluster_of(6, 4, 1))), (std::vector{12, 24, 36, 48}));
    EXPECT_EQ(counts(sizes_around(cluster_of(1, 8, 1))), (std::vector{2, 4, 8, 12, 16}));
    EXPECT_EQ(counts(sizes_around(cluster_of(1, 1, 1))), (std::vector{1, 2}));
    for (const Cluster& one : sizes_around(cluster_of(8, 4, 1))) EXPECT_NO_THROW(check(one));
    EXPECT_ERROR(with_node_count(cluster_of(1, 8, 1), 2), "no level of links");
}

TEST(ClusterSizes, KeepTheLevelsThatStillDivide) {
    Cluster cluster = cluster_of(12, 2, 1);
    cluster.levels[1].size = 3;
    cluster.levels.push_back({.name = "core", .size = 4, .speed = {.latency = 2e-5, .bytes = 1e9}, .unit_devices = 6});
    check(cluster);
    auto sizes = [](const Cluster& one) {
        std::vector<int> found;
        for (const LinkLevel& level : one.levels) found.push_back(level.size);
        return found;
    };
    EXPECT_EQ(scaled(cluster, 1, 1), cluster);
    EXPECT_EQ(sizes(*scaled(cluster, 2, 1)), (std::vector{2, 3, 8}));
    EXPECT_EQ(sizes(*scaled(cluster, 1, 2)), (std::vector{2, 3, 2}));
    EXPECT_EQ(sizes(*scaled(cluster, 1, 4)), (std::vector{2, 3}));
    EXPECT_EQ(sizes(with_node_count(cluster, 4)), (std::vector{2, 4})); // 3 does not divide it
    EXPECT_EQ(sizes(with_node_count(cluster, 1)), (std::vector{2}));
}

TEST(ClusterSizes, ACapLeavesSmallerDevicesAsTheyAre) {
    Cluster cluster = cluster_of(2, 2, 1);
    cluster.kinds.push_back(sized_node(4, 3));
    const Cluster capped = with_memory_cap(cluster, {2'000'000'000});
    EXPECT_EQ(capped.kinds[0], cluster.kinds[0]);
    EXPECT_EQ(capped.kinds[1].device.memory, Bytes{2'000'000'000});
}

TEST(ClusterSizes, OfUnequalNodesEveryKindGrows) {
    Cluster cluster = cluster_of(4, 2, 1);
    cluster.kinds.push_back(sized_node(4, 3));
    cluster.nodes = {0, 0, 1, 1};
    EXPECT_EQ(scaled(cluster, 2, 1)->nodes, (std::vector{0, 0, 0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(scaled(cluster, 1, 2)->nodes, (std::vector{0, 1}));
    EXPECT_EQ(scaled(cluster, 1, 4), std::nullopt); // half a node, and half a device of the smaller ones
    EXPECT_EQ(scaled(cluster, 3, 2)->nodes.size(), 6u);
    cluster.nodes = {0, 1};
    cluster.levels.back().size = 2;
    EXPECT_EQ(scaled(cluster, 1, 2)->device_count(), 3);
    EXPECT_EQ(scaled(cluster, 1, 2)->nodes, cluster.nodes);
    cluster = cluster_of(4, 2, 1);
    cluster.kinds.push_back(sized_node(4, 3));
    cluster.nodes = {0, 0, 1, 1};
    EXPECT_EQ(with_node_count(cluster, 6).nodes, (std::vector{0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(with_node_count(cluster, 3).nodes, (std::vector{0, 0, 1}));
}

TEST(SmallestChange, IsFoundBySearching) {
    nlohmann::json config = open_model("gpt2-tiny").config();
    config["n_layer"] = 2;
    const ModelSource source(config, "a small model");
    const BlockChain chain = chain_of(source, 64, DType::bfloat16);
    const PlannerWorkload workload{.sequence = 64, .global_batch = 4, .precision = {.compute = DType::bfloat16}};
    const PlannerOptions options{.kept_free_share = 0, .kept_free = {0}};
    auto plan = [&](const Cluster& cluster, const PlannerWorkload& work) {
        const RooflineCost costs(cluster, all_operators());
        PlanModel model(chain, costs, work, options);
        // One that fits is enough.
        return search(model, {.kept = 1, .listener = [](const SearchProgress& now) { return now.best == 0; }});
    };
    auto fits = [&](const Cluster& cluster, const PlannerWorkload& work) { return !plan(cluster, work).best.empty(); };
    const Cluster cluster = cluster_of(1, 2, 0.0035), joined = cluster_of(2, 1, 0.0035);
    for (const Cluster& tight : {cluster, joined}) {
        const SearchResult nothing = plan(tight, workload);
        ASSERT_TRUE(nothing.best.empty());
        const FittingChanges changes = changes_that_fit(chain, tight, workload, options, nothing.closest, 600);
        ASSERT_TRUE(changes.memory);
        EXPECT_TRUE(fits(with_more_memory(tight, *changes.memory), workload));
        EXPECT_FALSE(fits(with_more_memory(tight, {changes.memory->count / 2}), workload));
        EXPECT_EQ(changes.devices.has_value(), tight.nodes.size() == 1);
        EXPECT_EQ(changes.nodes.has_value(), tight.nodes.size() > 1);
        const int count = changes.devices ? *changes.devices : *changes.nodes;
        auto with = [&](int number) {
            return changes.devices ? with_devices(tight, number) : with_node_count(tight, number);
        };
        EXPECT_TRUE(fits(with(count), workload));
        EXPECT_FALSE(fits(with(count - 1), workload));
        PlannerWorkload narrow = workload;
        narrow.precision.moments = DType::bfloat16;
        if (changes.moments) {
            EXPECT_TRUE(fits(tight, narrow));
        }
        EXPECT_FALSE(what_would_fit(chain, tight, workload, options, nothing.closest, 600).empty());
        // Out of time: nothing is known, and nothing is said that was not found.
        EXPECT_EQ(changes_that_fit(chain, tight, workload, options, nothing.closest, 0).memory, std::nullopt);
    }
}

} // namespace
} // namespace tutti

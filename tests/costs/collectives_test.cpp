#include "costs/collectives.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
namespace {

// Round figures: nodes of 4 devices with 100 bytes/s and 1 s of latency; 3 nodes a rack, with 10 bytes/s for each
// device and 2 s; 2 racks, that share 60 bytes/s of 12 devices, and 5 s.
Cluster two_racks() {
    Cluster cluster;
    cluster.kinds = {{.device = *find_device_preset("h100"), .devices = 4, .link = {1, 100}, .host_copy = {0, 7}}};
    cluster.nodes = std::vector<int>(6, 0);
    cluster.levels = {{.name = "node", .size = 4, .speed = {1, 100}},
                      {.name = "rack", .size = 3, .speed = {2, 40}, .unit_bytes = 40, .unit_devices = 4},
                      {.name = "spine", .size = 2, .speed = {5, 10}, .unit_bytes = 60, .unit_devices = 12}};
    check(cluster);
    return cluster;
}

double seconds(Collective what, std::int64_t bytes, std::vector<int> factors) {
    return collective_seconds(what, {bytes}, {std::move(factors)}, two_racks().levels);
}

constexpr Collective all[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                              Collective::all_to_all, Collective::broadcast};

TEST(Collectives, OneLevelIsARing) {
    EXPECT_DOUBLE_EQ(seconds(Collective::all_gather, 1000, {4}), 3 * 1 + 0.75 * 1000 / 100);
    EXPECT_DOUBLE_EQ(seconds(Collective::reduce_scatter, 1000, {4, 1, 1}), 10.5);
    EXPECT_DOUBLE_EQ(seconds(Collective::all_reduce, 1000, {4}), 21);
    EXPECT_DOUBLE_EQ(seconds(Collective::broadcast, 1000, {4}), 2 * 1 + 10);
    EXPECT_DOUBLE_EQ(seconds(Collective::broadcast, 1000, {3}), 2 * 1 + 10);
    // each of 4 has 250 bytes and keeps a quarter of them
    EXPECT_DOUBLE_EQ(seconds(Collective::all_to_all, 1000, {4}), 3 * 1 + 0.75 * 250 / 100);
    // one device of each node: a quarter of the node's 40
    EXPECT_DOUBLE_EQ(seconds(Collective::all_gather, 1000, {1, 3}), 2 * 2 + 2.0 / 3 * 1000 / 10);
    // between racks 60 / 12 bytes/s each
    EXPECT_DOUBLE_EQ(seconds(Collective::all_gather, 1000, {1, 1, 2}), 5 + 0.5 * 1000 / 5);
}

TEST(Collectives, LargeOnesUseAllLinksOfANodeAndSmallOnesGoLevelByLevel) {
    // A ring through 4 devices of 3 nodes: a node sends 40 bytes/s, 11 steps of 2 s.
    const double bytes = 1e6;
    const double ring = 11 * 2 + 11.0 / 12 * bytes / 40;
    // Level by level: 3 steps of 1 s and 2 of 2 s; a quarter goes between nodes.
    const double tiered = 3 + 0.75 * bytes / 100 + 2 * 2 + 2.0 / 3 * bytes / 4 / 10;
    EXPECT_LT(ring, tiered);
    EXPECT_DOUBLE_EQ(seconds(Collective::all_gather, 1'000'000, {4, 3}), ring);
    EXPECT_DOUBLE_EQ(seconds(Collective::all_reduce, 1'000'000, {4, 3}), 2 * ring);
    EXPECT_DOUBLE_EQ(seconds(Collective::all_gather, 12, {4, 3}), 3 + 0.09 + 4 + 2.0 / 3 * 3 / 10);
}

TEST(Collectives, WhatPassesTheSpineHasPassedTheRack) {
    Cluster cluster = two_racks();
    cluster.levels[2].unit_bytes = 12000; // more than the nodes can send
    EXPECT_DOUBLE_EQ(collective_seconds(Collective::all_gather, {1000}, {{1, 1, 2}}, cluster.levels),
                     5 + 0.5 * 1000 / 10);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 2, cluster.levels), 5 + 100);
}

TEST(Collectives, AllToAllIsDecidedByTheBusiestLevel) {
    // 12 members hold 100 each; 8/12 of that leaves the node at 10 bytes/s.
    EXPECT_DOUBLE_EQ(seconds(Collective::all_to_all, 1200, {4, 3}),
                     std::min(11 * 2 + 100 * 8.0 / 12 / 10, 3 + 0.75 * 100 / 100 + 4 + 2.0 / 3 * 100 / 10));
}

TEST(Collectives, AGroupOfOneDoesNothing) {
    for (Collective what : all) {
        EXPECT_EQ(seconds(what, 1000, {}), 0);
        EXPECT_EQ(seconds(what, 1000, {1, 1, 1}), 0);
    }
}

TEST(Collectives, MoreBytesAndMoreUnitsNeverTakeLess) {
    for (Collective what : all) {
        for (const std::vector<int>& factors :
             {std::vector<int>{2}, {4}, {1, 2}, {1, 3}, {4, 3}, {2, 3, 2}, {1, 1, 2}, {4, 3, 2}}) {
            double before = 0;
            for (std::int64_t bytes : {0, 1, 10, 1000, 4096, 1'000'000, 1'000'000'000}) {
                const double now = seconds(what, bytes, factors);
                EXPECT_GE(now, before) << name_of(what) << " " << bytes;
                before = now;
            }
        }
        for (std::int64_t bytes : {1, 1000, 1'000'000}) {
            EXPECT_LE(seconds(what, bytes, {2}), seconds(what, bytes, {1, 2}));
            EXPECT_LE(seconds(what, bytes, {1, 2}), seconds(what, bytes, {1, 1, 2}));
            EXPECT_LE(seconds(what, bytes, {4}), seconds(what, bytes, {2, 2}));
            if (what == Collective::all_to_all) continue; // its parts get smaller as the group grows
            EXPECT_LE(seconds(what, bytes, {2}), seconds(what, bytes, {3}));
            EXPECT_LE(seconds(what, bytes, {4, 2}), seconds(what, bytes, {4, 3}));
            EXPECT_LE(seconds(what, bytes, {4, 3, 1}), seconds(what, bytes, {4, 3, 2}));
        }
    }
}

TEST(Collectives, MessagesShareWhatTheirNodeHas) {
    const auto levels = two_racks().levels;
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 0, levels), 1 + 10);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 1, levels), 2 + 1000 / 10.0);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 1, levels, 1), 2 + 1000 / 40.0);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 1, levels, 2), 2 + 1000 / 20.0);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 2, levels), 5 + 1000 / 5.0);
    EXPECT_DOUBLE_EQ(message_seconds({1000}, 2, levels, 1), 5 + 1000 / 10.0); // of the 60, 20 each; a device takes 10
}

TEST(Collectives, ShapesFollowFromWhereMembersAre) {
    const Cluster cluster = two_racks();
    const auto devices = cluster.devices();
    auto shape = [&](std::vector<int> members) { return shape_of(cluster, devices, members).factors; };
    EXPECT_EQ(shape({0, 1, 2, 3}), (std::vector<int>{4, 1, 1}));
    EXPECT_EQ(shape({0, 4, 8}), (std::vector<int>{1, 3, 1}));
    EXPECT_EQ(shape({3, 15}), (std::vector<int>{1, 1, 2}));
    EXPECT_EQ(shape({0, 1, 4, 5, 12, 13, 16, 17}), (std::vector<int>{2, 2, 2}));
    EXPECT_EQ(shape({0, 1, 2, 4}), (std::vector<int>{3, 2, 1})); // uneven: the most that a unit holds
    EXPECT_EQ(cluster.level_between(devices[0], devices[3]), 0);
    EXPECT_EQ(cluster.level_between(devices[3], devices[4]), 1);
    EXPECT_EQ(cluster.level_between(devices[11], devices[12]), 2);
    EXPECT_THROW(seconds(Collective::all_reduce, 1, {1, 1, 1, 2}), Bug);
}

TEST(Collectives, NamesReadBack) {
    for (Collective what : all) EXPECT_EQ(parse_collective(name_of(what)), what);
    EXPECT_FALSE(parse_collective("gather"));
}

} // namespace
} // namespace tutti

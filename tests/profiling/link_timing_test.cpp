#include "profiling/link_timing.h"

#include "backend/reference/reference.h"
#include "comm/threads/thread_world.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti {

using namespace backend::reference;
using namespace comm;
using namespace comm::threads;
using namespace costs;
using namespace profiling;
namespace {

constexpr std::array sizes = {Bytes{8}, Bytes{1000}, Bytes{50000}};

// What every rank of so many got.
template <class Body>
auto on_ranks(int ranks, const Body& body) {
    const auto worlds = make_thread_worlds(ranks, Seconds{60});
    std::vector<decltype(body(*worlds[0]))> results(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < results.size(); ++i) threads.emplace_back([&, i] { results[i] = body(*worlds[i]); });
    for (std::thread& thread : threads) thread.join();
    return results;
}

TEST(LinkTiming, EveryCollectiveIsTimedForEveryGroupSizeThatDividesTheWorld) {
    const auto results = on_ranks(
        4, [](World& world) { return time_collectives(*make_reference_device(), DType::float32, world, sizes); });
    EXPECT_EQ(results[0].size(), 5u * 2 * 3); // what, {2, 4}, bytes
    for (const auto& samples : results) EXPECT_EQ(samples, results[0]);
    for (const CollectiveSample& sample : results[0]) {
        EXPECT_TRUE(sample.ranks == 2 || sample.ranks == 4);
        EXPECT_GT(sample.seconds, 0);
    }
}

TEST(LinkTiming, AnOddRankOutOnlyWaits) {
    const auto results = on_ranks(3, [](World& world) { return time_messages(world, sizes); });
    EXPECT_EQ(results[0].size(), 3u);
    for (const auto& samples : results) EXPECT_EQ(samples, results[0]);
}

TEST(LinkTiming, CopiesAndContentionAreFiguresThatCanBe) {
    const auto copies = on_ranks(2, [](World& world) { return time_host_copies(*make_reference_device(), world); });
    EXPECT_GT(copies[0].bytes, 0);
    EXPECT_EQ(copies[0], copies[1]);
    const auto both =
        on_ranks(2, [](World& world) { return time_contention(*make_reference_device(), DType::float32, world); });
    EXPECT_EQ(both[0], both[1]);
    EXPECT_GE(both[0].compute, 1);
    EXPECT_GE(both[0].communication, 1);
}

TEST(LinkTiming, OneRankHasNothingToExchange) {
    const auto world = make_single_world();
    EXPECT_TRUE(time_collectives(*make_reference_device(), DType::float32, *world).empty());
    EXPECT_TRUE(time_messages(*world).empty());
    EXPECT_EQ(time_contention(*make_reference_device(), DType::float32, *world), Contention{});
}

} // namespace
} // namespace tutti

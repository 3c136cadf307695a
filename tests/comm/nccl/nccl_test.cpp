// The plug-in against groups of the host, on four ranks: what is copied has the same bits, what is added is as close as
// another order of adding allows. The device cuda is the one beside this program, a stand-in or a GPU; TUTTI_NCCL names
// what stands in for NCCL there. With NCCL itself, which wants a GPU for every rank, Nccl.* runs on one.
#include "backend/plugin.h"
#include "base/error.h"
#include "comm/device_group.h"
#include "comm/support/ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

namespace tutti::test {

using namespace backend;
using namespace comm;
namespace {

constexpr int ranks = 4;
using Counts = std::vector<std::int64_t>;

const std::string library = std::getenv("TUTTI_NCCL") ? std::getenv("TUTTI_NCCL") : TUTTI_NCCL_STAND_IN;

class Nccl : public testing::Test {
  protected:
    Nccl() { ::setenv("TUTTI_NCCL", library.c_str(), 1); }
    ~Nccl() override { ::unsetenv("TUTTI_STAND_IN_VERSIONS"); }
};
class NcclGroups : public Nccl {};

// A rank with its group of the host, the same of devices, and a queue. Stand-ins reach any memory, also the host's.
struct Rank {
    explicit Rank(World& world)
        : host(world.all()), device(network->group("all", host, {0, 1, 2, 3})), queue(gpu->make_queue()) {}

    Stream stream() const { return queue->native(); }

    std::unique_ptr<Device> gpu = open_plugin_device("cuda");
    std::unique_ptr<DeviceNetwork> network = open_nccl();
    Group& host;
    std::unique_ptr<DeviceGroup> device;
    std::unique_ptr<Queue> queue;
};

void on_four_ranks(const std::function<void(Rank&)>& body) {
    run_ranks(ranks, [&](World& world) {
        Rank rank(world);
        body(rank);
    });
}

std::vector<float> values_of(int rank, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(rank) * 131));
    return values;
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
    return std::as_writable_bytes(std::span(values));
}
std::byte* data_of(std::vector<float>& values) { return bytes_of(values).data(); }

std::int64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
Counts in_bytes(Counts counts) {
    for (std::int64_t& count : counts) count *= 4;
    return counts;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

// Even and uneven, with a rank that has nothing.
const std::vector<Counts> splits = {{5, 5, 5, 5}, {3, 0, 7, 1}, {0, 0, 0, 0}, {1000, 1, 999, 31}};

TEST_F(NcclGroups, ReduceOverAllRanks) {
    on_four_ranks([](Rank& rank) {
        for (const std::int64_t count : {0, 1, 1003})
            for (const Combine combine : {Combine::sum, Combine::maximum}) {
                std::vector<float> expected = values_of(rank.host.rank(), count), found = expected, apart(found.size());
                rank.device->all_reduce(data_of(found), data_of(apart), {4 * count}, DType::float32, combine,
                                        rank.stream());
                rank.device->all_reduce(data_of(found), data_of(found), {4 * count}, DType::float32, combine,
                                        rank.stream());
                rank.host.wait(rank.host.all_reduce(bytes_of(expected), DType::float32, combine));
                rank.queue->synchronize();
                expect_near(found, expected);
                EXPECT_EQ(found, apart);
            }
    });
}

TEST_F(NcclGroups, ReduceEveryTypeThatIsReduced) {
    on_four_ranks([](Rank& rank) {
        std::vector<BFloat16> halves(9, BFloat16(1.5F));
        std::vector<std::int64_t> whole(9, std::int64_t{1} << 40);
        std::vector<double> wide(9, 0.1);
        const auto reduce = [&](std::span<std::byte> data, DType dtype) {
            rank.device->all_reduce(data.data(), data.data(), {static_cast<std::int64_t>(data.size())}, dtype,
                                    Combine::sum, rank.stream());
        };
        reduce(bytes_of(halves), DType::bfloat16);
        reduce(bytes_of(whole), DType::int64);
        reduce(bytes_of(wide), DType::float64);
        rank.queue->synchronize();
        EXPECT_EQ(static_cast<float>(halves[8]), 6.0F);
        EXPECT_EQ(whole[8], std::int64_t{1} << 42);
        EXPECT_NEAR(wide[8], 0.4, 1e-12);
        EXPECT_THROW(reduce(bytes_of(whole), DType::boolean), Error);
    });
}

TEST_F(NcclGroups, GatherEvenAndUnevenParts) {
    on_four_ranks([](Rank& rank) {
        for (const Counts& counts : splits) {
            const auto mine = static_cast<std::size_t>(rank.host.rank());
            std::vector<float> part = values_of(rank.host.rank(), counts[mine]);
            std::vector<float> expected(static_cast<std::size_t>(sum_of(counts))), found(expected.size());
            const Counts bytes = in_bytes(counts);
            rank.device->all_gather(data_of(part), data_of(found), bytes, rank.stream());
            rank.host.wait(rank.host.all_gather(bytes_of(part), bytes_of(expected), bytes));
            rank.queue->synchronize();
            EXPECT_EQ(found, expected);
            // A part that lies where it belongs already.
            const auto before = std::accumulate(bytes.begin(), bytes.begin() + rank.host.rank(), std::int64_t{0});
            std::vector<float> in_place(expected.size());
            std::ranges::copy(part, in_place.begin() + before / 4);
            rank.device->all_gather(data_of(in_place) + before, data_of(in_place), bytes, rank.stream());
            rank.queue->synchronize();
            EXPECT_EQ(in_place, expected);
        }
    });
}

TEST_F(NcclGroups, ReduceAndScatterEvenAndUnevenParts) {
    on_four_ranks([](Rank& rank) {
        for (const Counts& counts : splits) {
            std::vector<float> all = values_of(rank.host.rank(), sum_of(counts));
            std::vector<float> expected(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank.host.rank())]));
            std::vector<float> found(expected.size());
            const Counts bytes = in_bytes(counts);
            rank.device->reduce_scatter(data_of(all), data_of(found), bytes, DType::float32, Combine::sum,
                                        rank.stream());
            rank.host.wait(
                rank.host.reduce_scatter(bytes_of(all), bytes_of(expected), bytes, DType::float32, Combine::sum));
            rank.queue->synchronize();
            expect_near(found, expected);
        }
    });
}

TEST_F(NcclGroups, GiveEveryRankItsOwn) {
    on_four_ranks([](Rank& rank) {
        // From rank i to rank k go i + 2k elements, so that 0 to 0 sends nothing.
        Counts out_counts, in_counts;
        for (int other = 0; other < ranks; ++other) {
            out_counts.push_back(4 * (rank.host.rank() + 2 * other));
            in_counts.push_back(4 * (other + 2 * rank.host.rank()));
        }
        std::vector<float> out = values_of(rank.host.rank(), sum_of(out_counts) / 4);
        std::vector<float> expected(static_cast<std::size_t>(sum_of(in_counts) / 4)), found(expected.size());
        rank.device->all_to_all(data_of(out), out_counts, data_of(found), in_counts, rank.stream());
        rank.host.wait(rank.host.all_to_all(bytes_of(out), out_counts, bytes_of(expected), in_counts));
        rank.queue->synchronize();
        EXPECT_EQ(found, expected);
    });
}

TEST_F(NcclGroups, BroadcastFromAnyRank) {
    on_four_ranks([](Rank& rank) {
        for (int root = 0; root < ranks; ++root) {
            std::vector<float> data = values_of(rank.host.rank(), 77);
            rank.device->broadcast(data_of(data), {4 * 77}, root, rank.stream());
            rank.queue->synchronize();
            EXPECT_EQ(data, values_of(root, 77));
        }
    });
}

// Two ranks that send to each other first: each way is a group and has a queue, or they would wait for ever.
TEST_F(NcclGroups, OfTwoRanksCarryMessagesBothWaysAtOnce) {
    run_ranks(2, [](World& world) {
        const auto network = open_nccl();
        Group& host = world.all();
        const auto there = network->group("there", host, {0, 1}), back = network->group("back", host, {1, 0});
        DeviceGroup &out = host.rank() == 0 ? *there : *back, &in = host.rank() == 0 ? *back : *there;
        const auto gpu = open_plugin_device("cuda");
        const auto sends = gpu->make_queue(), receives = gpu->make_queue();
        std::vector<float> mine = values_of(host.rank(), 500), other(500);
        for (int i = 0; i < 5; ++i) out.send(data_of(mine), {2000}, 1, sends->native());
        for (int i = 0; i < 5; ++i) in.receive(data_of(other), {2000}, 0, receives->native());
        receives->synchronize();
        sends->synchronize();
        EXPECT_EQ(other, values_of(1 - host.rank(), 500));
        EXPECT_STREQ(in.latest().name, "receive");
        EXPECT_EQ(in.latest().sequence, 5);
    });
}

TEST_F(NcclGroups, ThatAreAbandonedHoldNoQueueUp) {
    on_four_ranks([](Rank& rank) {
        std::vector<float> data(10);
        if (rank.host.rank() != 2) // which never comes
            rank.device->all_reduce(data_of(data), data_of(data), {40}, DType::float32, Combine::sum, rank.stream());
        rank.device->abandon();
        rank.queue->synchronize();
        EXPECT_NO_THROW(rank.device->check());
        EXPECT_THROW(rank.device->broadcast(data_of(data), {40}, 0, rank.stream()), Bug);
    });
}

// In the device's own memory, as NCCL wants it.
TEST_F(Nccl, ServesARankThatIsAlone) {
    const auto world = make_single_world();
    const auto device = open_plugin_device("cuda");
    const auto group = open_nccl()->group("alone", world->all(), {0});
    const auto queue = device->make_queue();
    constexpr std::int64_t size = 4 * 1003;
    const auto memory = device->allocate({3 * size});
    std::byte *const first = memory->data(), *const second = first + size, *const third = second + size;
    std::vector<float> values = values_of(0, size / 4), found(values.size());
    device->copy_in(first, bytes_of(values));
    group->all_reduce(first, second, {size}, DType::float32, Combine::maximum, queue->native());
    group->all_gather(second, third, Counts{size}, queue->native());
    group->reduce_scatter(third, second, Counts{size}, DType::float32, Combine::sum, queue->native());
    group->all_to_all(second, Counts{size}, first, Counts{size}, queue->native());
    group->broadcast(first, {size}, 0, queue->native());
    queue->synchronize();
    EXPECT_NO_THROW(group->check());
    device->copy_out(bytes_of(found), first);
    EXPECT_EQ(found, values);
    EXPECT_EQ(group->latest().sequence, 5);
}

std::string why_nccl_does_not_open() {
    try {
        open_nccl();
    } catch (const Error& error) {
        return error.what();
    }
    return "it does";
}

TEST_F(Nccl, ThatCannotBeUsedIsToldInASentence) {
    ::setenv("TUTTI_NCCL", "/nowhere/libnccl.so", 1);
    EXPECT_EQ(why_nccl_does_not_open(),
              "NCCL cannot be used here: /nowhere/libnccl.so: cannot open shared object file: No such file or "
              "directory; install it, or name its file in TUTTI_NCCL");
    ::setenv("TUTTI_NCCL", "libm.so.6", 1);
    EXPECT_EQ(why_nccl_does_not_open(), "NCCL cannot be used here: libm.so.6 has no ncclGetVersion");
    ::setenv("TUTTI_NCCL", TUTTI_NCCL_STAND_IN, 1);
    ::setenv("TUTTI_STAND_IN_VERSIONS", "2804", 1);
    EXPECT_TRUE(why_nccl_does_not_open().ends_with(" is version 2.8.4; 2.10.0 or newer is needed"));
}

} // namespace
} // namespace tutti::test

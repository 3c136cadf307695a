// Ranks that stay away, fail, leave early or let go of what is under way: the others end, with one sentence that names
// the culprit.
#include "base/error.h"
#include "comm/support/ranks.h"

#include <gtest/gtest.h>

#include <future>

namespace tutti {

using namespace comm;
using namespace comm::threads;
namespace {

constexpr Seconds soon{1}; // and yet long enough for threads to meet on a busy machine

// What every rank's function ended with: the sentence of its WorldError, or "" where there was none.
std::vector<std::string> run_to_the_end(int ranks, const std::function<void(World&)>& function,
                                        Seconds timeout = soon) {
    std::vector<std::string> ends(ranks);
    run_ranks(
        ranks,
        [&](World& world) {
            try {
                function(world);
            } catch (const WorldError& error) {
                ends[world.rank()] = error.what();
            }
        },
        timeout);
    return ends;
}

void reduce(Group& group, std::int64_t count = 1000) {
    std::vector<float> data(count);
    group.wait(group.all_reduce(std::as_writable_bytes(std::span(data)), DType::float32, Combine::sum));
}

void compute_until_failure(World& world) {
    while (!world.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Faults, NameTheRanksThatDidNotArrive) {
    const auto ends = run_to_the_end(5, [](World& world) {
        for (int i = 0; i < 3; ++i) reduce(world.all());
        if (world.rank() == 1 || world.rank() == 4) return compute_until_failure(world);
        reduce(world.all(), 3 << 18);
    });
    const std::string sentence =
        "all_reduce 4 of group world (3.00 MiB) did not finish within 1 s: ranks 1, 4 did not arrive";
    EXPECT_EQ(ends, (std::vector<std::string>{sentence, "", sentence, sentence, ""}));
}

TEST(Faults, NameTheReceiverThatDidNotCome) {
    const auto ends = run_to_the_end(3, [](World& world) {
        const auto group = world.group("pipe", {2, 1, 0}, 7);
        if (world.rank() != 2) return compute_until_failure(world);
        std::vector<std::byte> data(10);
        group->wait(group->send(data, 1));
    });
    EXPECT_EQ(ends[2], "send 1 of group pipe to rank 1 (10 B) did not finish within 1 s: rank 1 did not arrive");
}

// Rank 1 did not arrive where rank 0 waits, but only because it waits for rank 2 itself.
TEST(Faults, BlameNobodyWhoIsWaiting) {
    const auto ends = run_to_the_end(3, [](World& world) {
        if (world.rank() == 0) reduce(*world.group("left", {0, 1}, 1));
        if (world.rank() == 1) {
            std::vector<std::byte> data(10);
            world.all().wait(world.all().receive(data, 2));
        }
        if (world.rank() == 2) compute_until_failure(world);
    });
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_TRUE(ends[0].ends_with("rank 2 did not arrive")) << ends[0];
}

TEST(Faults, OfWhichGroupsKnowNothingEndAllWithOneSentence) {
    const auto ends = run_to_the_end(4, [](World& world) {
        if (world.rank() == 1 || world.rank() == 2) world.complain(fmt::format("rank {} is stuck", world.rank()));
        compute_until_failure(world);
        throw WorldError(world.failure()->sentence);
    });
    EXPECT_TRUE(ends[0] == "rank 1 is stuck" || ends[0] == "rank 2 is stuck") << ends[0];
    for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
}

// Long before the timeout. What stops the engine here is a thread that watches operations and never returns.
TEST(Faults, NameARankWithoutASignOfLife) {
    auto worlds = make_thread_worlds(4, Seconds{600}, Seconds{1});
    std::promise<void> is_over;
    std::shared_future<void> wait_for_end = is_over.get_future();
    worlds[2]->observe([=](const OperationRecord&) { wait_for_end.wait(); });
    std::vector<std::string> ends(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank)
        threads.emplace_back([&, rank] {
            try {
                if (rank == 2) {
                    const auto group = worlds[2]->group("first", {2, 3}, 1);
                    reduce(*group); // and its engine stops
                    return wait_for_end.wait();
                }
                if (rank == 3) reduce(*worlds[3]->group("first", {2, 3}, 1));
                reduce(worlds[rank]->all());
            } catch (const WorldError& error) {
                ends[rank] = error.what();
            }
        });
    for (int rank : {0, 1, 3}) threads[rank].join();
    is_over.set_value();
    threads[2].join();
    const std::string sentence =
        "all_reduce 1 of group world (3.91 KiB) is held up: rank 2 does not answer (it was killed or stopped)";
    EXPECT_EQ(ends, (std::vector<std::string>{sentence, sentence, "", sentence}));
}

TEST(Faults, LetARankComputeForLong) {
    const auto worlds = make_thread_worlds(3, Seconds{600}, Seconds{1});
    std::vector<std::thread> threads;
    for (const auto& world : worlds)
        threads.emplace_back([&] {
            if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
            EXPECT_NO_THROW(reduce(world->all()));
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(Faults, NameRanksThatHadEnded) {
    auto worlds = make_thread_worlds(2, soon);
    worlds[1].reset();
    try {
        reduce(worlds[0]->all());
        FAIL() << "an all_reduce without the other rank";
    } catch (const WorldError& error) {
        EXPECT_TRUE(std::string(error.what()).ends_with("rank 1 had already ended")) << error.what();
    }
}

TEST(Faults, FailureOfOneEndsAll) {
    const auto ends = run_to_the_end(
        4,
        [](World& world) {
            reduce(world.all());
            if (world.rank() == 2) return world.fail("the disk of rank 2 is full", 75);
            reduce(world.all());
        },
        Seconds{600}); // nobody waits for that
    EXPECT_EQ(ends[0], "the disk of rank 2 is full");
    EXPECT_EQ(ends[1], ends[0]);
    EXPECT_EQ(ends[3], ends[0]);
}

TEST(Faults, AreRememberedWithTheirStatus) {
    const auto worlds = make_thread_worlds(2);
    EXPECT_FALSE(worlds[0]->failure());
    worlds[1]->fail("the first", 2);
    worlds[1]->fail("the second", 70);
    worlds[0]->fail("the third", 70);
    const Failure first{.sentence = "the first", .status = 2, .teller = 1};
    EXPECT_EQ(worlds[0]->failure(), first);
    EXPECT_EQ(worlds[1]->failure(), first);
    std::vector<std::byte> data(4);
    const Ticket ticket = worlds[0]->all().send(data, 1); // begun after the end
    EXPECT_TRUE(worlds[0]->all().done(ticket));
    EXPECT_THROW(worlds[0]->all().wait(ticket), WorldError);
    EXPECT_THROW(worlds[0]->all().wait(ticket), WorldError);
}

TEST(Faults, OperationsThatDoNotFitEachOtherEndInAMessage) {
    const auto ends = run_to_the_end(2, [](World& world) { reduce(world.all(), world.rank() == 0 ? 10 : 12); });
    EXPECT_NE(ends[0].find("bytes"), std::string::npos) << ends[0];
    EXPECT_EQ(ends[0], ends[1]);
}

// As an exception does it: the group, then its buffers are gone while the others still send. Sanitizers would see a
// touch.
TEST(Faults, AGroupThatEndsLetsGoOfItsBuffers) {
    for (int round = 0; round < 20; ++round) {
        auto worlds = make_thread_worlds(2, Seconds{600});
        std::promise<void> is_gone;
        std::thread other([&] {
            const auto group = worlds[1]->group("data", {0, 1}, 1);
            const auto reduce_for_ever = [&] {
                while (true) reduce(*group, 1 << 20);
            };
            EXPECT_THROW(reduce_for_ever(), WorldError);
            is_gone.get_future().wait();
        });
        {
            std::vector<float> data(1 << 20), more(1 << 20);
            const auto group = worlds[0]->group("data", {0, 1}, 1); // goes first
            group->all_reduce(std::as_writable_bytes(std::span(data)), DType::float32, Combine::sum);
            group->receive(std::as_writable_bytes(std::span(more)), 1); // of what is never sent
            if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            worlds[0]->group("other", {0, 1}, 2).reset(); // nothing is under way there: nothing happens
        }
        worlds[0].reset();
        is_gone.set_value();
        other.join();
    }
}

TEST(Faults, AnExceptionEndsTheOthersToo) {
    auto worlds = make_thread_worlds(2, Seconds{600});
    std::thread other([world = std::move(worlds[1])]() mutable {
        try {
            const auto mine = std::move(world);
            fail("nobody catches this in time");
        } catch (const Error&) {
        }
    });
    EXPECT_THROW(reduce(worlds[0]->all()), WorldError);
    EXPECT_EQ(worlds[0]->failure()->sentence, "rank 1 ended before its work was done");
    other.join();
}

} // namespace
} // namespace tutti

// Ranks that have devices: each its own, which communicate by themselves, or all of them one, and data passes through
// host memory. Training gives the numbers of one process on the CPU.
#include "parallel/run_ranks.h"

#include "base/error.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace tutti::test {

using namespace comm::threads;
using namespace run;
using namespace sharding;
using namespace train;
namespace {

struct Layout {
    std::string name, model;
    Mesh mesh;
    std::function<void(RunConfig&)> change = [](RunConfig&) {};
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.model << ' ' << to_string(layout.mesh); }

std::vector<Layout> layouts() {
    auto zero = [](int stage) { return [=](RunConfig& config) { config.zero = stage; }; };
    auto schedule = [](std::string family) { return [=](RunConfig& config) { config.schedule = family; }; };
    auto plain = [](RunConfig& config) { config.sequence_parallel = false; };
    return {
        {"DataZero3", "llama", {.data = 4}, zero(3)},
        {"DataZero1", "gpt2", {.data = 4}, zero(1)},
        {"Pipe", "gpt2", {.pipe = 4}},
        {"PipeDual", "qwen2", {.pipe = 2, .data = 2}, schedule("dualpipe")},
        {"PipeZeroBubbleV", "qwen2", {.pipe = 2, .tensor = 2}, schedule("zb-v")},
        {"Tensor", "gpt2", {.tensor = 4}, plain},
        {"TensorThree", "bert", {.tensor = 3}},
        {"All", "llama", {.pipe = 2, .tensor = 2}},
    };
}

class Devices : public testing::TestWithParam<Layout> {
  protected:
    Devices() { ::setenv("TUTTI_NCCL", TUTTI_NCCL_STAND_IN, 1); }
    ~Devices() override {
        ::unsetenv("TUTTI_NCCL");
        ::unsetenv("TUTTI_STAND_IN_SHARED");
    }

    static RunConfig run_of(const Layout& layout) {
        RunConfig config = small_run(layout.model);
        config.device = "cuda"; // the stand-in beside this program
        config.mesh = layout.mesh;
        config.steps = 3; // the first by way of the host
        if (layout.change) layout.change(config);
        return config;
    }
    static Recorder trained_by_one_process(RunConfig config) {
        config.mesh.reset();
        config.schedule.clear();
        config.zero = 0;
        config.device = "cpu";
        config.dump_step0.clear();
        Recorder recorder;
        const std::atomic<bool> stop = false;
        train::train(config, recorder, stop);
        return recorder;
    }
};

TEST_P(Devices, OfTheirOwnExchangeDataByThemselves) {
    const RunConfig config = run_of(GetParam());
    const Recorder expected = trained_by_one_process(config);
    const RanksResult found = train_on_ranks(config);
    for (const Recorder& rank : found.listeners) {
        expect_same_training(expected, rank);
        EXPECT_TRUE(rank.warnings.empty()) << rank.warnings.front();
    }
}

TEST_P(Devices, ThatAreOneExchangeDataThroughHostMemory) {
    ::setenv("TUTTI_STAND_IN_SHARED", "1", 1);
    ::setenv("TUTTI_NCCL", "/nowhere/libnccl.so", 1); // nobody asks for it
    const RunConfig config = run_of(GetParam());
    const Recorder expected = trained_by_one_process(config);
    const RanksResult found = train_on_ranks(config);
    for (const Recorder& rank : found.listeners) {
        expect_same_training(expected, rank);
        EXPECT_TRUE(rank.warnings.empty()) << rank.warnings.front();
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Devices, testing::ValuesIn(layouts()),
                         [](const auto& layout) { return layout.param.model + layout.param.name; });

// What every rank of a run throws, "" where it returns.
using Listeners = std::vector<std::unique_ptr<TrainListener>>;
std::vector<std::string> ends_of(const RunConfig& config, const Listeners& listeners, Seconds timeout,
                                 std::atomic<bool>* is_over = nullptr) {
    const auto worlds = make_thread_worlds(static_cast<int>(listeners.size()), timeout);
    std::vector<std::string> ends(listeners.size());
    std::vector<std::thread> threads;
    const std::atomic<bool> stop = false;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                train::train(config, *listeners[rank], stop, *worlds[rank]);
            } catch (const std::exception& error) {
                ends[rank] = error.what();
                worlds[rank]->fail(error.what(), 75);
            }
            if (is_over != nullptr) *is_over = true;
        });
    for (std::thread& thread : threads) thread.join();
    return ends;
}

// Does something when the first step is done.
struct Acting : TrainListener {
    std::function<void()> act = [] {};
    void stepped(const StepReport& report) override {
        if (report.step == 1) act();
    }
};

Listeners four_of_which_one(const std::function<void()>& acts) {
    Listeners listeners;
    for (int rank = 0; rank < 4; ++rank) {
        auto listener = std::make_unique<Acting>();
        if (rank == 1) listener->act = acts;
        listeners.push_back(std::move(listener));
    }
    return listeners;
}

class DevicesInTrouble : public Devices {
  protected:
    static RunConfig long_run(const Mesh& mesh) {
        RunConfig config = run_of({"", "gpt2", mesh, {}});
        config.steps = 1000;
        return config;
    }
};

TEST_F(DevicesInTrouble, WithoutNcclExchangeDataThroughHostMemoryAndSaySo) {
    ::setenv("TUTTI_NCCL", "/nowhere/libnccl.so", 1);
    const RunConfig config = run_of({"", "gpt2", {.data = 4}, {}});
    const RanksResult found = train_on_ranks(config);
    for (const Recorder& rank : found.listeners) {
        expect_same_training(trained_by_one_process(config), rank);
        ASSERT_EQ(rank.warnings.size(), 1);
        EXPECT_EQ(rank.warnings[0],
                  "every rank has a device of its own, but data passes between them through host memory: "
                  "NCCL cannot be used here: /nowhere/libnccl.so: cannot open shared object file: No such file or "
                  "directory; install it, or name its file in TUTTI_NCCL");
    }
}

TEST_F(DevicesInTrouble, WithDifferentLibrariesDoTheSame) {
    ::setenv("TUTTI_STAND_IN_VERSIONS", "22703 21903", 1);
    const RunConfig config = run_of({"", "gpt2", {.data = 2}, {}});
    for (const Recorder& rank : train_on_ranks(config).listeners) {
        expect_same_training(trained_by_one_process(config), rank);
        ASSERT_EQ(rank.warnings.size(), 1);
        EXPECT_NE(rank.warnings[0].find(" through host memory: rank 0 has NCCL 2."), std::string::npos)
            << rank.warnings[0];
    }
    ::unsetenv("TUTTI_STAND_IN_VERSIONS");
}

// It takes part in the steps that are under way until all have stopped.
TEST_F(DevicesInTrouble, FailWithARankThatFails) {
    const auto ends =
        ends_of(long_run({.pipe = 4}), four_of_which_one([] { fail("rank 1 does not like this"); }), {60});
    for (const std::string& end : ends) EXPECT_EQ(end, "rank 1: rank 1 does not like this");
}

// Also where a step is more than devices take at once: the host must not be blocked there.
TEST_F(DevicesInTrouble, DoNotWaitForeverForARankThatDoesNotCome) {
    std::atomic<bool> is_over = false;
    const auto stays_away = [&] {
        while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    RunConfig config = long_run({.pipe = 2, .data = 2});
    config.workload.global_batch = 64;
    const auto ends = ends_of(config, four_of_which_one(stays_away), {3}, &is_over);
    for (const std::string& end : ends) {
        EXPECT_EQ(end, ends.front());
        EXPECT_NE(end.find(" of group "), std::string::npos) << end;
        EXPECT_NE(end.find(" did not finish within 3"), std::string::npos) << end;
        EXPECT_TRUE(end.ends_with(", between devices")) << end;
    }
}

TEST_F(DevicesInTrouble, TellWhatNcclSays) {
    void* library = ::dlopen(TUTTI_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    auto* const set_broken = reinterpret_cast<void (*)(bool)>(::dlsym(library, "stand_in_break"));
    const auto breaks = [&] {
        set_broken(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(300)); // the others wait for this rank
    };
    for (const std::string& end : ends_of(long_run({.data = 4}), four_of_which_one(breaks), {60}))
        EXPECT_NE(end.find(": NCCL says remote process exited or there was a network error"), std::string::npos) << end;
    set_broken(false);
}

} // namespace
} // namespace tutti::test

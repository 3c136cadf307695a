// Traces of real runs, on ranks that are threads.
#include "support/paths.h"
#include "train/tracing.h"

#include "comm/threads/thread_world.h"
#include "formats/json.h"
#include "report/comparison.h"
#include "run/layout.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace tutti {

using namespace comm::threads;
using namespace report;
using namespace run;
using namespace sharding;
using namespace test;
using namespace train;
namespace {

using test::TemporaryFolder;

RunConfig small_run(const std::string& mesh, std::int64_t steps) {
    RunConfig config;
    config.model = (test::test_data() / "references" / "gpt2").string();
    config.steps = steps;
    config.workload.sequence = 16;
    config.workload.global_batch = 8;
    config.workload.micro_batch = 1;
    config.threads = 1;
    config.device = test::device_to_test();
    config.mesh = parse_mesh(mesh);
    return config;
}

struct Listener : TrainListener {
    std::vector<double> losses;
    std::vector<std::string> warnings, folders;
    void warning(const std::string& text) override { warnings.push_back(text); }
    void stepped(const StepReport& report) override { losses.push_back(report.loss); }
    void saved(const std::string& folder) override { folders.push_back(folder); }
};

// What the listener of rank 0 heard.
Listener train_on_threads(const RunConfig& config) {
    const auto worlds = make_thread_worlds(mesh_of(config).ranks(), Seconds{60});
    std::vector<Listener> listeners(worlds.size());
    std::exception_ptr first;
    std::mutex mutex;
    std::vector<std::thread> threads;
    const std::atomic<bool> stop = false;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                train::train(config, listeners[rank], stop, *worlds[rank]);
            } catch (const std::exception& error) {
                {
                    const std::lock_guard lock(mutex);
                    if (!first) first = std::current_exception();
                }
                worlds[rank]->fail(error.what(), 70);
            }
        });
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
    return listeners[0];
}

// Every task of the program once, one after the other, with its waits and its communication.
void expect_whole(const RunTrace& trace) {
    for (const TracedStep& step : trace.steps)
        for (const RankTrace& rank : step.ranks) {
            std::vector<TracedTask> tasks = rank.tasks;
            std::ranges::sort(tasks, {}, [](const TracedTask& task) { return std::pair(task.start, task.end); });
            double now = rank.start - 1e-7;
            for (const TracedTask& task : tasks) {
                EXPECT_GE(task.start, now - 1e-7) << name_of(task);
                EXPECT_LE(task.end, rank.end + 1e-7) << name_of(task);
                now = task.end;
            }
            for (const TracedWait& wait : rank.waits) {
                EXPECT_GE(wait.start, rank.start - 1e-7);
                EXPECT_LE(wait.end, rank.end + 1e-7) << wait.what;
            }
            for (const TracedCommunication& communication : rank.communications)
                EXPECT_GE(communication.task, 0) << communication.what;
        }
}

int count(const RankTrace& rank, TaskKind kind) {
    return static_cast<int>(std::ranges::count(rank.tasks, kind, &TracedTask::kind));
}

TEST(Tracing, APipelineOfTwoRanksIsTracedWholeAndTrainsTheSame) {
    const TemporaryFolder folder;
    RunConfig config = small_run("pipe=2", 6);
    const Listener plain = train_on_threads(config);
    config.trace = (folder / "trace.json").string();
    const Listener traced = train_on_threads(config);
    EXPECT_EQ(traced.losses, plain.losses);
    EXPECT_EQ(traced.folders, std::vector<std::string>{config.trace});

    const RunTrace trace = read_run_trace(config.trace);
    ASSERT_EQ(trace.steps.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(trace.steps[i].step, static_cast<std::int64_t>(2 + i));
    ASSERT_EQ(trace.ranks(), 2);
    EXPECT_EQ(trace.schedule, "1f1b");
    EXPECT_EQ(trace.offsets, (std::vector<Seconds>{{0}, {0}})); // one machine
    expect_whole(trace);
    for (const TracedStep& step : trace.steps)
        for (const RankTrace& rank : step.ranks) {
            EXPECT_EQ(count(rank, TaskKind::forward), 8);
            EXPECT_EQ(count(rank, TaskKind::backward), 8);
            EXPECT_EQ(count(rank, TaskKind::send), 8);
            EXPECT_EQ(count(rank, TaskKind::receive), 8);
            EXPECT_EQ(count(rank, TaskKind::norm), 1);
            EXPECT_EQ(count(rank, TaskKind::update), 1);
        }
    // The simulation has the communication of the run.
    for (int r = 0; r < 2; ++r) {
        auto sorted = [](const RankTrace& rank) {
            std::vector<std::tuple<std::string, std::int64_t, std::int32_t>> list;
            for (const TracedCommunication& one : rank.communications)
                list.emplace_back(one.what, one.bytes.count, one.task);
            std::ranges::sort(list);
            return list;
        };
        const auto at = static_cast<std::size_t>(r);
        EXPECT_EQ(sorted(trace.steps[0].ranks[at]), sorted(trace.simulated[at]));
    }
    const Comparison comparison = compare(trace);
    EXPECT_GT(comparison.time.simulated, 0);
    EXPECT_GT(comparison.bubble.simulated, 0);
    EXPECT_LT(comparison.bubble.simulated, 1);
}

TEST(Tracing, TensorAndDataAxesAreTracedToo) {
    const TemporaryFolder folder;
    for (const char* mesh : {"tensor=2", "data=2"}) {
        RunConfig config = small_run(mesh, 2);
        config.zero = std::string(mesh) == "data=2" ? 1 : 0;
        config.trace = (folder / "trace.json").string();
        train_on_threads(config);
        const RunTrace trace = read_run_trace(config.trace);
        ASSERT_EQ(trace.steps.size(), 2u) << mesh; // all of a short run
        EXPECT_EQ(trace.steps[0].step, 0);
        expect_whole(trace);
        for (int r = 0; r < 2; ++r)
            EXPECT_EQ(trace.steps[0].ranks[static_cast<std::size_t>(r)].communications.size(),
                      trace.simulated[static_cast<std::size_t>(r)].communications.size())
                << mesh;
    }
}

TEST(Tracing, OneRankHasNobodyToWaitFor) {
    const TemporaryFolder folder;
    RunConfig config = small_run("data=1", 3);
    config.trace = (folder / "trace.json").string();
    Listener listener;
    train::train(config, listener, false);
    const RunTrace trace = read_run_trace(config.trace);
    ASSERT_EQ(trace.ranks(), 1);
    expect_whole(trace);
    EXPECT_TRUE(trace.steps[0].ranks[0].waits.empty());
    EXPECT_TRUE(trace.steps[0].ranks[0].communications.empty());
}

TEST(Tracing, AFileThatCannotBeWrittenIsToldBeforeTheFirstStep) {
    const TemporaryFolder folder;
    RunConfig config = small_run("data=2", 2);
    config.trace = (folder / "absent" / "trace.json").string();
    EXPECT_ERROR(train_on_threads(config), "absent");
    config.trace = folder.path().string();
    EXPECT_ERROR(train_on_threads(config), "it is not a regular file");
}

TEST(Tracing, StepsAreChosenFromThoseOfThisProcess) {
    RunConfig config;
    auto chosen = [&](std::int64_t steps, std::int64_t first, std::int64_t stop_after) {
        config.steps = steps;
        config.stop_after = stop_after;
        const TracedSteps traced = traced_steps(config, first);
        return std::pair(traced.first, traced.count);
    };
    EXPECT_EQ(chosen(100, 0, 0), std::pair(2l, 3l));
    EXPECT_EQ(chosen(5, 0, 0), std::pair(2l, 3l));
    EXPECT_EQ(chosen(4, 0, 0), std::pair(1l, 3l));
    EXPECT_EQ(chosen(2, 0, 0), std::pair(0l, 2l));
    EXPECT_EQ(chosen(100, 50, 0), std::pair(52l, 3l));
    EXPECT_EQ(chosen(100, 50, 4), std::pair(51l, 3l));
    EXPECT_EQ(chosen(50, 50, 0), std::pair(50l, 0l));
}

} // namespace
} // namespace tutti

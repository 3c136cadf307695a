// Runs whose layout is left open: all ranks take the same plan, settings hold, and the choice leaves no trace in the
// run that follows.
#include "choose/automatic.h"

#include "base/error.h"
#include "comm/threads/thread_world.h"
#include "profiling/kept_profile.h"
#include "resolve/run_plan.h"
#include "support/recorder.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <thread>

namespace tutti {

using namespace choose;
using namespace comm;
using namespace comm::threads;
using namespace costs;
using namespace profiling;
using namespace resolve;
using namespace run;
using namespace sharding;
using namespace test;
using namespace train;
namespace {

using test::TemporaryFolder;

// What a listener of rank 0 hears.
using test::Recorder;

void on_ranks(int ranks, const std::function<void(World&)>& body) {
    const auto worlds = make_thread_worlds(ranks, Seconds{60});
    std::vector<std::thread> threads;
    for (const auto& world : worlds)
        threads.emplace_back([&body, own = world.get()] {
            try {
                body(*own);
            } catch (const std::exception& error) {
                ADD_FAILURE() << error.what();
                own->fail(error.what(), 75);
            }
        });
    for (std::thread& thread : threads) thread.join();
}

class Automatic : public testing::Test {
  protected:
    // The machine is measured once for all tests but those that ask for a cache of their own.
    Automatic() {
        static const TemporaryFolder shared;
        ::setenv("TUTTI_CACHE", (shared / "cache").c_str(), 1);
    }
    ~Automatic() override { ::unsetenv("TUTTI_CACHE"); }

    void use_own_cache() { ::setenv("TUTTI_CACHE", (folder_ / "cache").c_str(), 1); }

    static RunConfig small() {
        RunConfig config;
        config.model = "gpt2-tiny";
        config.workload.sequence = 16;
        config.workload.global_batch = 4;
        config.steps = 4;
        config.threads = 1;
        config.ranks = 2;
        config.mesh = Mesh{.data = 2};
        config.comm = Connection::threads;
        return config;
    }

    // On every rank; all have to agree.
    PlanChoice choice(const RunConfig& config, const AutomaticOptions& options, Recorder& notes) {
        std::vector<std::string> plans(static_cast<std::size_t>(config.ranks));
        PlanChoice first;
        on_ranks(config.ranks, [&](World& world) {
            TrainListener silent;
            TrainListener& listener = world.rank() == 0 ? static_cast<TrainListener&>(notes) : silent;
            PlanChoice own = choose_plan(config, options, listener, stop_, world);
            plans[static_cast<std::size_t>(world.rank())] = to_json(own.tried[own.taken].plan);
            if (world.rank() == 0) first = std::move(own);
        });
        for (const std::string& plan : plans) EXPECT_EQ(plan, plans.front());
        return first;
    }

    std::vector<double> losses(const RunConfig& config, const Plan* plan, Recorder& notes) {
        on_ranks(config.ranks, [&](World& world) {
            TrainListener silent;
            TrainListener& listener = world.rank() == 0 ? static_cast<TrainListener&>(notes) : silent;
            train::train(plan ? with_plan(config, *plan) : config, listener, stop_, world, {.given = plan});
        });
        std::vector<double> losses;
        for (const StepReport& step : notes.steps) losses.push_back(step.loss);
        return losses;
    }

    TemporaryFolder folder_;
    const std::atomic<bool> stop_ = false;
};

TEST_F(Automatic, TheFastestMeasuredPlanIsTakenAndTrainsAsItsFileDoes) {
    Recorder choosing, running, from_file;
    const PlanChoice chosen = choice(small(), {.measure_top = 2, .version = "1"}, choosing);
    ASSERT_EQ(chosen.tried.size(), 2u);
    EXPECT_TRUE(choosing.steps.empty()) << "steps that measure a plan are not the run's";
    EXPECT_NE(chosen.tried[0].plan, chosen.tried[1].plan);
    const TriedPlan& taken = chosen.tried[chosen.taken];
    for (const TriedPlan& one : chosen.tried) {
        EXPECT_EQ(one.plan.mesh.ranks(), 2);
        EXPECT_EQ(one.plan.device, "cpu");
        ASSERT_TRUE(one.plan.predicted);
        EXPECT_GT(one.plan.predicted->step.count, 0);
        EXPECT_EQ(one.plan.predicted->memory.size(), static_cast<std::size_t>(one.plan.mesh.pipe));
        ASSERT_TRUE(one.measured);
        EXPECT_LE(taken.measured->count, one.measured->count);
    }
    const std::vector<double> here = losses(small(), &taken.plan, running);
    ASSERT_EQ(here.size(), 4u);
    ASSERT_EQ(running.comparisons.size(), 1u); // a short run is compared at its end
    EXPECT_EQ(running.comparisons[0].predicted, taken.plan.predicted->step);
    EXPECT_EQ(running.comparisons[0].steps, 2);
    EXPECT_GT(running.comparisons[0].memory.count, 0);
    // The same thing is predicted and measured: a rank's arena and what its process took before.
    EXPECT_NEAR(static_cast<double>(running.comparisons[0].predicted_memory.count) /
                    static_cast<double>(running.comparisons[0].memory.count),
                1, 0.25);

    const fs::path file = folder_ / "plan.json";
    write_text_atomically(file, to_json(taken.plan));
    RunConfig by_file = with_plan(small(), read_plan(file.string()));
    by_file.plan = file.string();
    EXPECT_EQ(losses(by_file, nullptr, from_file), here);
    ASSERT_EQ(from_file.comparisons.size(), 1u); // the file knows what was predicted
    EXPECT_EQ(from_file.comparisons[0].predicted, taken.plan.predicted->step);
}

TEST_F(Automatic, WhatWasSetStaysAsItIs) {
    RunConfig config = small();
    config.workload.micro_batch = 1;
    config.zero = 1;
    config.recompute = {.share = 1};
    Recorder notes;
    const AutomaticOptions options{
        .freedom = {.micro_batch = false, .zero = false, .recompute = false}, .measure_top = 0, .version = "1"};
    const PlanChoice chosen = choice(config, options, notes);
    ASSERT_EQ(chosen.tried.size(), 1u);
    EXPECT_FALSE(chosen.tried[0].measured);
    const Plan& plan = chosen.tried[0].plan;
    EXPECT_EQ(plan.workload.micro_batch, 1);
    EXPECT_EQ(plan.zero, 1);
    ASSERT_FALSE(plan.recompute.empty());
    std::size_t again = 0;
    for (const auto& blocks : plan.recompute) again += blocks.size();
    EXPECT_GT(again, 3u); // every block
}

TEST_F(Automatic, KernelsAreTimedOnceAndKeptWhileTheMachineIsTheSame) {
    use_own_cache();
    Recorder first, second, other;
    const AutomaticOptions options{.measure_top = 0, .version = "1"};
    choice(small(), options, first);
    EXPECT_TRUE(first.warnings.empty());
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) files.push_back(entry.path());
    ASSERT_EQ(files.size(), 1u);
    const CostProfile kept = parse_profile(read_text(files[0]), "kept");
    EXPECT_GT(kept.kernels.size(), 10u);
    choice(small(), options, second);
    const CostProfile again = parse_profile(read_text(files[0]), "kept");
    for (const auto& [key, sample] : kept.kernels) EXPECT_EQ(again.kernels.at(key).seconds, sample.seconds) << key;
    EXPECT_TRUE(second.warnings.empty());
    choice(small(), {.measure_top = 0, .version = "2"}, other);
    ASSERT_EQ(other.warnings.size(), 1u);
    EXPECT_TRUE(other.warnings[0].starts_with("the kept profile is measured anew: ")) << other.warnings[0];
    EXPECT_NE(other.warnings[0].find("the version of this program was 1, and here it is 2"), std::string::npos);
    EXPECT_EQ(parse_profile(read_text(files[0]), "kept").machine.version, "2");
}

// Between its parts, and on all ranks.
TEST_F(Automatic, ChoosingEndsWhereItIsAskedTo) {
    struct Asking : Recorder {
        std::string part;
        std::atomic<bool> stop = false;
        int after = 0; // what was begun after that
        void waiting(const std::string& what) override {
            after += stop && what.starts_with("measuring ") ? 1 : 0;
            if (what.starts_with(part)) stop = true;
        }
    };
    for (const char* part : {"measuring ", "timing collectives and messages"}) {
        if (part != std::string_view("measuring ")) use_own_cache(); // where nothing is measured yet
        Asking asking;
        asking.part = part;
        std::atomic<int> ended = 0;
        on_ranks(2, [&](World& world) {
            TrainListener silent;
            const std::atomic<bool> never = false; // one rank alone is asked
            const bool first = world.rank() == 0;
            try {
                choose_plan(small(), {.version = "1"}, first ? static_cast<TrainListener&>(asking) : silent,
                            first ? asking.stop : never, world);
            } catch (const ChoosingStopped&) {
                ++ended;
            }
        });
        EXPECT_EQ(ended, 2) << part;
        EXPECT_EQ(asking.after, 0) << part;
    }
}

TEST(KeptProfile, DamageIsASentenceAndNoReasonToStop) {
    const TemporaryFolder folder;
    const Fingerprint here{.device = "cpu", .model = "m", .cores = 2, .threads = 1, .version = "1"};
    const fs::path file = folder / "p.json";
    EXPECT_FALSE(find_profile(file, here, 2, DType::float32).profile);
    EXPECT_EQ(find_profile(file, here, 2, DType::float32).why_not, "");
    write_text_atomically(file, "{\"version\": ");
    EXPECT_NE(find_profile(file, here, 2, DType::float32).why_not.find("p.json"), std::string::npos);
    CostProfile profile;
    profile.machine = here;
    profile.ranks = 2;
    profile.memory = {1};
    profile.kernels["a"] = {"linear", 1, 1, 1, {7}};
    keep_profile(file, profile); // over what was no profile
    profile.kernels.clear();
    profile.kernels["b"] = {"linear", 2, 2, 2, {}};
    keep_profile(file, profile);
    const KeptProfile both = find_profile(file, here, 2, DType::float32);
    ASSERT_TRUE(both.profile) << both.why_not;
    EXPECT_EQ(both.profile->kernels.size(), 2u);
    EXPECT_FALSE(find_profile(file, here, 3, DType::float32).profile);
    EXPECT_NE(find_profile(file, here, 2, DType::bfloat16).why_not, "");
    EXPECT_NO_THROW(keep_profile("/proc/nowhere/p.json", profile));
}

} // namespace
} // namespace tutti

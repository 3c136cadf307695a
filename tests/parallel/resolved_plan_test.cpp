// A plan that a run has resolved is all that its programs follow from: followed again with other threads, other timed
// speeds and other free memory, it gives the same programs, and the same intervals on the device, to the byte.
#include "base/file.h"
#include "compile/compile.h"
#include "parallel/run_ranks.h"
#include "support/test_device.h"
#include "train/session/session.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

namespace tutti {

using namespace comm::threads;
using namespace offload;
using namespace run;
using namespace sharding;
using namespace train;
namespace {

// What a rank would run.
struct Prepared {
    Plan plan;
    Program program;
    Program compiled_again; // from the plan alone
    std::optional<ResidencyPlan> training, evaluation;
    std::optional<BackingPlan> backing;
    std::vector<std::string> decided;
};

// Keeps warnings: a plan that is followed gives none.
class Warnings : public TrainListener {
  public:
    void warning(const std::string& sentence) override { all.push_back(sentence); }
    std::vector<std::string> all;
};

std::vector<Prepared> prepared(const RunConfig& config, const SpeedTable& speeds) {
    const auto worlds = make_thread_worlds(config.mesh->ranks(), Seconds{60});
    std::vector<Prepared> ranks(worlds.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank)
        threads.emplace_back([&, rank] {
            Warnings listener;
            const Session session(config, listener, *worlds[rank], nullptr, &speeds);
            EXPECT_TRUE(listener.all.empty()) << listener.all.front();
            Prepared& mine = ranks[rank];
            mine.plan = session.plan();
            mine.program = session.compiled().program;
            mine.compiled_again =
                compile::compile(resolve::build(session.source(), mine.plan).graph, mine.plan, static_cast<int>(rank))
                    .program;
            mine.decided = session.decided();
            if (const auto& offload = session.offload()) {
                mine.training = offload->training.residency;
                if (offload->evaluation) mine.evaluation = offload->evaluation->residency;
                mine.backing = offload->backing;
            }
        });
    for (std::thread& thread : threads) thread.join();
    return ranks;
}

RunConfig follow(RunConfig config, const Plan& plan, const fs::path& file) {
    write_text_atomically(file, to_json(plan));
    config.plan = file.string();
    return config;
}

struct RunLayout {
    const char* name;
    const char* reference;
    const char* mesh;
    int zero = 0;
    const char* schedule = "";
    bool halves = false, limited = true;
};

class ResolvedPlan : public testing::TestWithParam<RunLayout> {
  protected:
    // With two thirds of the memory that it takes without a limit.
    RunConfig config() const {
        const RunLayout& layout = GetParam();
        RunConfig config = test::small_run(layout.reference);
        config.mesh = parse_mesh(layout.mesh);
        config.zero = layout.zero;
        config.schedule = layout.schedule;
        config.sub_pipeline = layout.halves;
        config.workload.micro_batch = 2;
        config.eval_every = 2;
        config.chunk_elements = 6000;
        config.threads = 2; // more need more workspace: followed with fewer, the limit holds
        if (!layout.limited) return config;
        Bytes arena, data;
        for (const test::Recorder& rank : test::train_on_ranks(config).listeners) {
            arena = std::max(arena, rank.summary.memory.arena());
            data = std::max(data, rank.summary.memory.model_data());
        }
        config.device_memory = arena - Bytes{data.count / 3};
        config.disk = (folder_ / ".").string();
        config.host_memory = {data.count / 8};
        return config;
    }
    test::TemporaryFolder folder_;
};

TEST_P(ResolvedPlan, GivesTheSameProgramsAnywhere) {
    const RunConfig asked = config();
    const std::vector<Prepared> first = prepared(asked, test::usual_speeds);
    RunConfig elsewhere = follow(asked, first[0].plan, folder_ / "plan.json");
    elsewhere.threads = 1;
    SpeedTable other = test::usual_speeds;
    other.host.in = 3e7, other.host.out = 1e9, other.kernels.flops = 1e12, other.updates = 1e6, other.disk.in = 1e6;
    const std::vector<Prepared> second = prepared(elsewhere, other);
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
        SCOPED_TRACE(rank);
        EXPECT_EQ(first[rank].plan, first[0].plan);
        EXPECT_EQ(second[rank].plan, first[0].plan);
        EXPECT_TRUE(second[rank].program == first[rank].program);
        EXPECT_EQ(to_text(second[rank].program), to_text(first[rank].program));
        EXPECT_TRUE(first[rank].compiled_again == first[rank].program);
        EXPECT_TRUE(second[rank].training == first[rank].training);
        EXPECT_TRUE(second[rank].evaluation == first[rank].evaluation);
        EXPECT_TRUE(second[rank].backing == first[rank].backing);
        EXPECT_TRUE(second[rank].decided.empty());
    }
    EXPECT_TRUE(first[0].plan.fusion.has_value());
    EXPECT_EQ(first[0].plan.residency.has_value(), GetParam().limited);
}

// Else the test above would pass where nothing depends on the machine.
TEST(OpenPlan, FollowsTheMachine) {
    test::TemporaryFolder folder;
    RunConfig config = test::small_run("gpt2");
    config.mesh = Mesh{};
    config.eval_every = 2;
    config.chunk_elements = 6000;
    const MemoryTable memory = test::train_on_ranks(config).listeners[0].summary.memory;
    config.device_memory = memory.arena() - Bytes{memory.model_data().count / 2};
    SpeedTable slow_host = test::usual_speeds, fast_host = test::usual_speeds;
    slow_host.updates = 1e5;
    fast_host.updates = 1e12;
    fast_host.host = {.latency = 1e-5, .in = 1e8, .out = 1e8};
    const Prepared slow = prepared(config, slow_host)[0], fast = prepared(config, fast_host)[0];
    EXPECT_FALSE(slow.program == fast.program);
    EXPECT_FALSE(slow.decided.empty());
    // A file with nothing decided in it, such as earlier programs left, is resolved anew.
    Plan open = fast.plan;
    open.fusion.reset();
    open.residency.reset();
    open.predicted.reset();
    const RunConfig followed = follow(config, open, folder / "plan.json");
    const Prepared again = prepared(followed, slow_host)[0];
    EXPECT_TRUE(again.program == slow.program);
    EXPECT_EQ(again.plan, slow.plan);
}

// A run that evaluates may follow a plan of one that did not.
TEST(OpenPlan, GetsAnEvaluationWhereItHasNone) {
    test::TemporaryFolder folder;
    RunConfig config = test::small_run("gpt2");
    config.mesh = Mesh{};
    config.chunk_elements = 6000;
    const MemoryTable memory = test::train_on_ranks(config).listeners[0].summary.memory;
    config.device_memory = memory.arena() - Bytes{memory.model_data().count / 2};
    const Prepared without = prepared(config, test::usual_speeds)[0];
    EXPECT_FALSE(without.evaluation);
    RunConfig evaluating = follow(config, without.plan, folder / "plan.json");
    evaluating.eval_every = 2;
    const Prepared with = prepared(evaluating, test::usual_speeds)[0];
    ASSERT_TRUE(with.evaluation);
    EXPECT_TRUE(with.program == without.program);
    EXPECT_TRUE(with.training == without.training);
    EXPECT_TRUE(with.plan.residency->front()->evaluation);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ResolvedPlan,
                         testing::Values(RunLayout{"Unlimited", "gpt2", "data=1", 0, "", false, false},
                                         RunLayout{"Alone", "gpt2", "data=1"}, RunLayout{"Zero2", "llama", "data=2", 2},
                                         RunLayout{"Zero3", "gpt2", "data=2", 3},
                                         RunLayout{"ZeroBubble", "gpt2", "pipe=2", 0, "zb-1p"},
                                         RunLayout{"Halves", "llama", "data=2,tensor=2", 1, "", true}),
                         [](const testing::TestParamInfo<RunLayout>& one) { return one.param.name; });

} // namespace
} // namespace tutti

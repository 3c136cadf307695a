// Model data that does not fit on the device: the same bits as with all of it there, whatever the memory and the ranks.
#include "base/error.h"
#include "base/file.h"
#include "parallel/run_ranks.h"
#include "support/open_files.h"
#include "support/test_device.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace comm;
using namespace offload;
using namespace run;
using namespace sharding;
using namespace test;
using namespace train;
namespace {

using test::RanksResult;
using test::TemporaryFolder;

struct Layout {
    const char* name;
    const char* reference;
    const char* mesh;
    int zero = 0;
    const char* schedule = "";
    int copies = 0;
    bool bf16 = false, narrow_gradients = false, at_once = false;
};

RunConfig run_of(const Layout& layout, const fs::path& output) {
    RunConfig config = test::small_run(layout.reference);
    config.mesh = parse_mesh(layout.mesh);
    config.zero = layout.zero;
    config.schedule = layout.schedule;
    config.model_replicas = layout.copies;
    config.steps = 3;
    config.eval_every = 2;
    config.eval_batches = 2;
    config.output = output.string();
    config.chunk_elements = 6000;
    if (layout.bf16) config.precision.compute = DType::bfloat16;
    if (layout.narrow_gradients) config.precision.gradients = DType::bfloat16;
    if (layout.at_once) config.workload.micro_batch = 0; // so gradients lie over weights
    return config;
}

// Of the rank that needs the most.
MemoryTable largest_table(const RanksResult& result) {
    return std::ranges::max_element(result.listeners, {},
                                    [](const test::Recorder& rank) { return rank.summary.memory.arena(); })
        ->summary.memory;
}

std::string state_of(const fs::path& output) {
    return read_text(output / "checkpoints/step-00000003/state.safetensors");
}

// The evaluations of `whole`, and its states, to the bit: whoever does the updates.
void expect_same(const RanksResult& limited, const RunConfig& config, const RanksResult& whole,
                 const std::string& expected) {
    EXPECT_EQ(limited.listeners[0].evaluations, whole.listeners[0].evaluations);
    EXPECT_TRUE(state_of(config.output) == expected);
}

Bytes least_named(const std::string& sentence) {
    const std::size_t at = sentence.find("The least that works is ") + 24;
    return *parse_bytes(sentence.substr(at, sentence.find(';', at) - at));
}

// With the device memory of the config; where an instruction of the step needs more, with the least that the error
// message names, which the config then has.
RanksResult train_in_little_memory(RunConfig& config) {
    try {
        return test::train_on_ranks(config);
    } catch (const std::exception& error) { // of this rank (Error) or another (WorldError)
        const std::string sentence = error.what();
        if (sentence.find("The least that works is ") == std::string::npos) throw;
        const Bytes least = least_named(sentence);
        EXPECT_GT(least, config.device_memory) << sentence;
        config.device_memory = least;
    }
    return test::train_on_ranks(config);
}

class Offload : public testing::TestWithParam<Layout> {};

// Each limit is trained with, or the least above it that works: no layout gets by without.
TEST_P(Offload, GivesTheSameBits) {
    TemporaryFolder folder;
    const RanksResult whole = test::train_on_ranks(run_of(GetParam(), folder / "whole"));
    const MemoryTable& memory = whole.listeners[0].summary.memory;
    const std::string expected = state_of(folder / "whole");
    const std::int64_t scratch = (memory.arena() - memory.model_data()).count, data = memory.model_data().count;
    auto limit = [&](double share) {
        return Bytes{scratch + static_cast<std::int64_t>(share * static_cast<double>(data)) + 4096};
    };
    struct Limit {
        double share;
        OptimizerPlacement placement;
        bool on_disk;
    };
    for (const auto& [share, placement, on_disk] : {Limit{0.15, OptimizerPlacement::host, false},
                                                    {0.45, OptimizerPlacement::device, true},
                                                    {0.8, OptimizerPlacement::automatic, true}}) {
        SCOPED_TRACE(share);
        RunConfig config = run_of(GetParam(), folder / std::to_string(share));
        config.device_memory = limit(share);
        config.disk = (folder / ".").string();
        config.optimizer_placement = placement;
        if (on_disk) config.host_memory = {data / 8};
        const RanksResult limited = train_in_little_memory(config);
        EXPECT_LE(config.device_memory, limit(0.8));
        expect_same(limited, config, whole, expected);
        int offloading = 0; // a rank of a pipeline may have less than others, and all of it on its device
        Bytes on_disk_of_all;
        for (const test::Recorder& rank : limited.listeners) {
            on_disk_of_all += rank.summary.memory.on_disk;
            const auto& summary = rank.summary.offload;
            if (!summary) continue;
            ++offloading;
            EXPECT_LE(rank.summary.memory.arena(), config.device_memory);
            EXPECT_GE(summary->fetched + summary->returned, summary->least);
            if (placement != OptimizerPlacement::automatic) { // what several stages hold, all of them update alike
                EXPECT_EQ(summary->updates_on_host > 0,
                          placement == OptimizerPlacement::host && GetParam().copies == 0);
            }
        }
        EXPECT_GT(offloading, 0);
        EXPECT_EQ(on_disk_of_all > Bytes{}, on_disk);
    }
    for (const auto& entry : fs::directory_iterator(folder / "."))
        EXPECT_EQ(entry.path().string().find("tutti-chunks"), std::string::npos) << entry.path();
}

// Without clipping, updates run in the backward; in memory at the end of the step.
TEST_P(Offload, UpdatesInTheBackwardGiveTheSameBits) {
    TemporaryFolder folder;
    RunConfig config = run_of(GetParam(), folder / "whole");
    config.clip = 0;
    const RanksResult whole = test::train_on_ranks(config);
    EXPECT_EQ(whole.listeners[0].summary.plan.updates, UpdateTime::automatic);
    const MemoryTable memory = largest_table(whole);
    const std::string expected = state_of(folder / "whole");
    config.output = (folder / "early").string();
    config.updates = UpdateTime::backward;
    test::train_on_ranks(config);
    EXPECT_TRUE(state_of(config.output) == expected) << "all in memory";
    for (const OptimizerPlacement placement : {OptimizerPlacement::host, OptimizerPlacement::device}) {
        config.output = (folder / std::string(name_of(placement))).string();
        config.updates = UpdateTime::automatic;
        config.optimizer_placement = placement;
        config.device_memory = memory.arena() - Bytes{memory.model_data().count * 3 / 10};
        const RanksResult limited = test::train_on_ranks(config);
        EXPECT_EQ(limited.listeners[0].summary.plan.updates, UpdateTime::backward);
        SCOPED_TRACE(name_of(placement));
        expect_same(limited, config, whole, expected);
    }
}

// Activations leave between forward and backward, and updates that wait for the norm run right before their chunks are
// used again.
TEST_P(Offload, ActivationsAwayAndUpdatesInTheNextStepGiveTheSameBits) {
    TemporaryFolder folder;
    RunConfig config = run_of(GetParam(), folder / "whole");
    const RanksResult whole = test::train_on_ranks(config);
    const MemoryTable memory = largest_table(whole);
    const std::string expected = state_of(config.output);
    config.output = (folder / "limited").string();
    config.offload_activations = ActivationOffload::full;
    config.updates = UpdateTime::next;
    config.optimizer_placement = OptimizerPlacement::device;
    config.device_memory = memory.arena() - Bytes{memory.model_data().count * 3 / 10};
    const RanksResult limited = test::train_on_ranks(config);
    const RunSummary& summary = limited.listeners[0].summary;
    EXPECT_GT(summary.memory.offloaded, Bytes{});
    EXPECT_LT(summary.memory.activations, whole.listeners[0].summary.memory.activations);
    EXPECT_LE(summary.memory.arena(), config.device_memory);
    EXPECT_EQ(summary.offload->updates_later > 0, config.zero == 0); // sharded chunks are updated at the end
    expect_same(limited, config, whole, expected);
}

// One micro-batch: gradients never leave, and states come once.
TEST(OffloadVolume, UpdatesInTheBackwardCopyLess) {
    RunConfig config = run_of({"", "gpt2", "data=1"}, {});
    config.output.clear();
    config.eval_every = 0;
    config.workload.global_batch = 1;
    config.clip = 0;
    config.dry_run = true;
    auto summary = [&] { return test::train_on_ranks(config).listeners[0].summary; };
    const MemoryTable memory = summary().memory;
    config.device_memory = memory.arena() - Bytes{memory.model_data().count * 6 / 10};
    config.optimizer_placement = OptimizerPlacement::device;
    config.updates = UpdateTime::end;
    const OffloadSummary end = *summary().offload;
    config.updates = UpdateTime::automatic;
    const OffloadSummary early = *summary().offload;
    EXPECT_LT(early.fetched, end.fetched);
    EXPECT_LT(early.returned, end.returned);
    EXPECT_LT(early.least, end.least);
}

// What is kept for the backward is more than the model.
RunConfig run_with_long_sequences(const fs::path& output) {
    RunConfig config = run_of({"", "gpt2", "data=1"}, output);
    config.workload.sequence = 32;
    config.workload.micro_batch = 4;
    return config;
}

// It does not have to be on the device.
TEST(OffloadActivations, TakeLessOfTheDeviceThanAllOfThem) {
    TemporaryFolder folder;
    RunConfig config = run_with_long_sequences(folder / "whole");
    const RanksResult whole = test::train_on_ranks(config);
    const MemoryTable memory = whole.listeners[0].summary.memory;
    config.output = (folder / "away").string();
    config.offload_activations = ActivationOffload::full;
    config.device_memory = memory.arena() - Bytes{memory.activations.count / 2};
    config.optimizer_placement = OptimizerPlacement::device;
    const RanksResult away = test::train_on_ranks(config);
    const MemoryTable& limited = away.listeners[0].summary.memory;
    EXPECT_LE(limited.arena(), config.device_memory);
    EXPECT_GT(limited.offloaded, Bytes{memory.activations.count / 3});
    EXPECT_TRUE(state_of(config.output) == state_of(folder / "whole"));
}

// `auto` offloads the blocks whose copies take less time than recomputing them, and recomputes the others.
TEST(OffloadActivations, AreOffloadedOrRecomputedByWhichIsFaster) {
    TemporaryFolder folder;
    RunConfig config = run_with_long_sequences(folder / "whole");
    const MemoryTable memory = test::train_on_ranks(config).listeners[0].summary.memory;
    config.offload_activations = ActivationOffload::automatic;
    config.recompute = {.share = 1};
    config.device_memory = memory.arena() - Bytes{memory.activations.count / 2};
    SpeedTable slow_copies = test::usual_speeds, slow_kernels = test::usual_speeds, as_fast = test::usual_speeds;
    slow_copies.host.in = slow_copies.host.out = 1e3;
    slow_kernels.kernels.flops = 1e3;
    // A copied byte costs what 20 flops do: less than recomputing it in some blocks, and more in others.
    as_fast.kernels.flops = 20e9;
    as_fast.host.in = as_fast.host.out = 1e9;
    auto planned = [&](const SpeedTable& speeds, const char* name) {
        config.output = (folder / name).string();
        const Plan plan = test::train_on_ranks(config, speeds).listeners[0].summary.plan;
        EXPECT_TRUE(state_of(config.output) == state_of(folder / "whole")) << name;
        EXPECT_EQ(plan.offload.size(), 1u);
        EXPECT_EQ(plan.recompute.size(), 1u);
        for (int block : plan.offload[0]) EXPECT_EQ(std::ranges::count(plan.recompute[0], block), 0) << block;
        return std::pair(plan.offload[0].size(), plan.recompute[0].size());
    };
    using Counts = std::pair<std::size_t, std::size_t>; // blocks that are offloaded, that are recomputed
    const Counts recomputed = planned(slow_copies, "recomputed"), offloaded = planned(slow_kernels, "offloaded"),
                 both = planned(as_fast, "both");
    EXPECT_EQ(recomputed, (Counts{0, 8})); // attention and MLP of four layers
    EXPECT_EQ(offloaded, (Counts{8, 0}));
    EXPECT_EQ(both.first + both.second, 8u);
    EXPECT_GT(both.first, 0u);
    EXPECT_GT(both.second, 0u);
}

// `auto` recomputes where activations would leave less than half of the limit to model data. Here they take four fifths
// of it: beside them there is room for the kernels' workspace, which differs from CPU to CPU, and for some chunks.
TEST(OffloadActivations, AreRecomputedWhereTheyTakeMostOfTheLimit) {
    TemporaryFolder folder;
    RunConfig config = run_with_long_sequences(folder / "whole");
    const RanksResult whole = test::train_on_ranks(config);
    const MemoryTable memory = whole.listeners[0].summary.memory;
    config.output = (folder / "limited").string();
    config.recompute = {.automatic = true};
    config.device_memory = Bytes{memory.activations.count * 5 / 4} + memory.buffers + memory.workspace;
    const RanksResult limited = test::train_on_ranks(config);
    const RunSummary& summary = limited.listeners[0].summary;
    ASSERT_EQ(summary.plan.recompute.size(), 1u);
    EXPECT_FALSE(summary.plan.recompute[0].empty());
    EXPECT_LT(summary.memory.activations, memory.activations);
    EXPECT_TRUE(state_of(config.output) == state_of(folder / "whole"));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Offload,
    testing::Values(Layout{"Alone", "gpt2", "data=1"}, Layout{"AloneBf16", "llama", "data=1", 0, "", 0, true},
                    Layout{"NarrowGradients", "gpt2", "data=1", 0, "", 0, true, true},
                    Layout{"OverWeights", "llama", "data=1", 0, "", 0, true, true, true},
                    Layout{"OverWeightsZero1", "gpt2", "data=2", 1, "", 0, true, true, true},
                    Layout{"NarrowZero2", "llama", "data=2", 2, "", 0, true, true}, Layout{"Data", "llama", "data=2"},
                    Layout{"Zero1", "gpt2", "data=2", 1}, Layout{"Zero2", "qwen2", "data=2", 2},
                    Layout{"Zero3", "gpt2", "data=4", 3}, Layout{"Zero3Eight", "llama", "data=4,tensor=2", 3},
                    Layout{"Tensor", "llama", "tensor=2"}, Layout{"PipeZeroBubble", "gpt2", "pipe=2", 0, "zb-1p"},
                    Layout{"Chimera", "gpt2", "pipe=2", 0, "chimera", 2},
                    Layout{"DataTensorZero3", "llama", "data=2,tensor=2", 3}),
    [](const testing::TestParamInfo<Layout>& one) { return one.param.name; });

// Its kernels need a workspace, on the host too.
TEST(OffloadReference, GivesTheSameBits) {
    TemporaryFolder folder;
    RunConfig config = run_of({"", "gpt2", "data=1"}, folder / "whole");
    config.device = "reference";
    config.steps = 3;
    const RanksResult whole = test::train_on_ranks(config);
    const MemoryTable& memory = whole.listeners[0].summary.memory;
    for (OptimizerPlacement placement : {OptimizerPlacement::device, OptimizerPlacement::host}) {
        config.output = (folder / "limited").string();
        config.optimizer_placement = placement;
        config.device_memory = memory.arena() - Bytes{memory.model_data().count / 3};
        fs::remove_all(config.output);
        const RanksResult limited = test::train_on_ranks(config);
        EXPECT_EQ(limited.listeners[0].summary.offload.value().updates_on_host > 0,
                  placement == OptimizerPlacement::host);
        ASSERT_EQ(limited.listeners[0].comparisons.size(), 1u); // what was planned beside what came of it
        EXPECT_EQ(limited.listeners[0].comparisons[0].predicted, limited.listeners[0].summary.offload->step);
        EXPECT_TRUE(state_of(config.output) == state_of(folder / "whole"));
    }
}

// A listener that cuts the file with chunks short after the first step.
struct Vandal : test::Recorder {
    explicit Vandal(fs::path where) : folder(std::move(where)) {}
    void stepped(const StepReport& report) override {
        test::Recorder::stepped(report);
        if (report.step != 1) return;
        for (const fs::path& file : test::nameless_files_of(folder)) fs::resize_file(file, 100);
    }
    fs::path folder;
};

RunConfig on_disk(const TemporaryFolder& folder) {
    RunConfig config = run_of({"", "gpt2", "data=1"}, folder / "run");
    config.save_every = 1;
    config.steps = 8;
    config.dry_run = true;
    const MemoryTable memory = test::train_on_ranks(config).listeners[0].summary.memory;
    config.dry_run = false;
    config.device_memory = memory.arena() - Bytes{memory.model_data().count / 2};
    config.host_memory = {1};
    fs::create_directories(folder / "disk");
    config.disk = (folder / "disk").string();
    return config;
}

TEST(OffloadFaults, AFileCutShortEndsTheRunAndLeavesItsCheckpoint) {
    TemporaryFolder folder;
    const RunConfig config = on_disk(folder);
    Vandal vandal(config.disk);
    const std::atomic<bool> stop = false;
    const auto world = make_single_world();
    try {
        train::train(config, vandal, stop, *world, {.speeds = &test::usual_speeds});
        FAIL() << "trained on";
    } catch (const WorldError& error) {
        EXPECT_NE(std::string(error.what()).find("cut short"), std::string::npos) << error.what();
    }
    RunConfig again = config;
    again.resume = true;
    again.device_memory = again.host_memory = {};
    again.disk.clear();
    test::Recorder recorder;
    EXPECT_EQ(train::train(again, recorder, stop).steps_done, 8);
    EXPECT_LE(recorder.warnings.size(), 1u);
}

// Ranks of a pipeline need unequal memory: what is named is enough for all of them.
TEST(OffloadFaults, TheLeastForAllRanksIsNamed) {
    TemporaryFolder folder;
    RunConfig config = run_of({"", "gpt2", "pipe=2", 0, "zb-1p"}, folder / "run");
    config.dry_run = true;
    config.device_memory = {1000};
    std::string sentence;
    try {
        test::train_on_ranks(config);
    } catch (const std::exception& error) {
        sentence = error.what();
    }
    ASSERT_NE(sentence.find("workspace of rank "), std::string::npos) << sentence;
    EXPECT_EQ(sentence.find("a smaller micro-batch"), std::string::npos) << sentence; // it is 1
    config.device_memory = least_named(sentence);
    test::train_on_ranks(config);
}

TEST(OffloadFaults, NoFolderAndNoRoomAreSentences) {
    TemporaryFolder folder;
    RunConfig config = on_disk(folder);
    const std::atomic<bool> stop = false;
    test::Recorder recorder;
    auto sentence = [&] {
        try {
            train::train(config, recorder, stop);
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
        return std::string("nothing");
    };
    config.disk = (folder / "nowhere").string();
    EXPECT_NE(sentence().find("nowhere"), std::string::npos) << sentence();
    config.disk = "/proc"; // has room for nothing
    EXPECT_NE(sentence().find("0 B are free there"), std::string::npos) << sentence();
    config.dry_run = true; // says so, too
    EXPECT_EQ(sentence(), "nothing");
    EXPECT_NE(recorder.warnings.back().find("0 B are free there"), std::string::npos) << recorder.warnings.back();
    EXPECT_NE(recorder.warnings.front().find("could not be timed"), std::string::npos) << recorder.warnings.front();
    EXPECT_EQ(recorder.summary.offload->disk, std::nullopt);
    config.dry_run = false;
    config.disk.clear();
    EXPECT_NE(sentence().find("--disk"), std::string::npos) << sentence();
    config.device_memory = {1000};
    const std::string too_little = sentence();
    ASSERT_NE(too_little.find("activations"), std::string::npos) << too_little;
    config.device_memory = least_named(too_little); // works
    config.steps = 1;
    config.host_memory = {};
    EXPECT_EQ(sentence(), "nothing");
}

} // namespace
} // namespace tutti

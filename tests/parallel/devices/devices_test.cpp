// Ranks that have devices: each its own, which exchange data by themselves, or all of them one, and data passes through
// host memory. Training gives the numbers of one process on the CPU.
#include "parallel/run_ranks.h"

#include "base/error.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::test {
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
        config.steps = 3;
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
        train(config, recorder, stop);
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

class DevicesOfFour : public Devices {};

} // namespace
} // namespace tutti::test

// Every layout against one process: losses, norms, and the gradient of every parameter.
#include "run_ranks.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti::test {

using namespace run;
using namespace sharding;
using namespace train;
namespace {

struct Layout {
    std::string name, model;
    Mesh mesh;
    std::function<void(RunConfig&)> change = [](RunConfig&) {};
    bool dropout = false;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.model << ' ' << to_string(layout.mesh); }

std::function<void(RunConfig&)> schedule(std::string family, int stages_per_rank = 0) {
    return [=](RunConfig& config) {
        config.schedule = family;
        config.stages_per_rank = stages_per_rank;
    };
}

std::vector<Layout> layouts() {
    auto zero = [](int stage) { return [=](RunConfig& config) { config.zero = stage; }; };
    auto recompute = [](double share, std::string family = "") {
        return [=](RunConfig& config) {
            config.recompute.share = share;
            config.schedule = family;
        };
    };
    auto plain = [](RunConfig& config) { config.sequence_parallel = false; };
    auto with_zero = [](std::string family, int stage) {
        return [=](RunConfig& config) {
            config.schedule = family;
            config.zero = stage;
        };
    };
    auto halves = [](RunConfig& config) {
        config.sub_pipeline = true;
        config.workload.micro_batch = 2;
    };
    return {
        {"Data", "gpt2", {.data = 2}},
        {"DataUneven", "gpt2", {.data = 4}, zero(1)},
        {"Pipe", "gpt2", {.pipe = 2}},
        {"PipeGpipe", "gpt2", {.pipe = 4}, schedule("gpipe")},
        {"PipeInterleaved", "gpt2", {.pipe = 2}, schedule("interleaved", 2)},
        {"Tensor", "gpt2", {.tensor = 2}},
        {"TensorPlain", "gpt2", {.tensor = 4}, plain},
        {"TensorDropout", "gpt2", {.tensor = 2}, {}, true},
        {"All", "gpt2", {.pipe = 2, .data = 2, .tensor = 2}, zero(1)},
        {"Halves", "gpt2", {.tensor = 2}, halves, true},
        {"Data", "llama", {.data = 2}, zero(2)},
        {"Zero3", "llama", {.data = 2}, zero(3)},
        {"PipeZeroBubble", "llama", {.pipe = 2}, schedule("zb-1p")},
        {"PipeShifted", "llama", {.pipe = 4}, recompute(1, "shifted-critical-path")},
        {"Tensor", "llama", {.tensor = 2}},
        {"HalvesRecompute",
         "llama",
         {.tensor = 2},
         [=](RunConfig& config) {
             halves(config);
             config.recompute.share = 1;
         }},
        {"All", "llama", {.pipe = 2, .data = 2, .tensor = 2}, zero(3)},
        {"Data", "qwen2", {.data = 2}, zero(1)},
        {"Pipe", "qwen2", {.pipe = 3}, recompute(0.5)},
        {"PipeZeroBubbleV", "qwen2", {.pipe = 2}, schedule("zb-v")},
        {"PipeDual", "qwen2", {.pipe = 2}, schedule("dualpipe")},
        {"Tensor", "qwen2", {.tensor = 2}, plain},
        {"All", "qwen2", {.pipe = 2, .data = 2, .tensor = 2}, zero(2)},
        {"Data", "bert", {.data = 2}, zero(2)},
        {"Pipe", "bert", {.pipe = 2}, {}, true},
        {"PipeChimera", "bert", {.pipe = 2, .data = 2}, schedule("chimera")},
        {"Tensor", "bert", {.tensor = 2}, {}, true},
        {"TensorThree", "bert", {.tensor = 3}},
        {"All", "bert", {.pipe = 2, .data = 2, .tensor = 2}, zero(1)},
        {"Tensor", "gpt_neox", {.pipe = 2, .tensor = 2}},
        {"Recompute", "gpt2", {}, recompute(1)},
        // Its head would rather split the tied embedding the other way than the embedding does.
        {"Pipe", "opt-post", {.pipe = 2, .tensor = 2}},
        {"PipeInterleaved", "opt-post", {.pipe = 2, .tensor = 4}, schedule("interleaved", 2)},
        {"PipeZeroBubbleV", "opt-post", {.pipe = 2, .tensor = 2}, schedule("zb-v")},
        {"PipeHalfV", "opt-post", {.pipe = 2, .tensor = 4}, with_zero("v-half", 1)},
        {"PipeHanayo", "opt-post", {.pipe = 2, .data = 2, .tensor = 2}, with_zero("hanayo", 1)},
        {"PipeChimera", "opt-post", {.pipe = 2, .data = 2, .tensor = 2}, with_zero("chimera", 3)},
        {"PipeMix", "opt-post", {.pipe = 2, .tensor = 2}, with_zero("mixpipe", 3)},
        {"PipeDual", "opt-post", {.pipe = 2, .tensor = 2}, schedule("dualpipe")},
        {"PipeDualV", "opt-post", {.pipe = 2, .tensor = 2}, schedule("dualpipe-v")},
    };
}

struct Reference {
    Recorder recorder;
    fs::path dump;
};

class Equality : public testing::TestWithParam<Layout> {
  protected:
    static RunConfig config_of(const Layout& layout) {
        RunConfig config = small_run(layout.model);
        if (layout.dropout) {
            static std::map<std::string, fs::path> models;
            fs::path& model = models[layout.model];
            if (model.empty()) model = with_dropout(layout.model, folder());
            config.model = model.string();
        }
        return config;
    }

    // One process with whole batches, trained once per model.
    static const Reference& reference(const RunConfig& config) {
        static std::map<std::string, Reference> references;
        const auto [at, is_new] = references.try_emplace(config.model);
        if (!is_new) return at->second;
        RunConfig one = config;
        one.dump_step0 = (folder().path() / fmt::format("one-{}.safetensors", references.size())).string();
        at->second.dump = one.dump_step0;
        const std::atomic<bool> stop = false;
        train::train(one, at->second.recorder, stop);
        return at->second;
    }

    static const TemporaryFolder& folder() {
        static const TemporaryFolder folder;
        return folder;
    }
};

TEST_P(Equality, OfOneProcess) {
    const Layout& layout = GetParam();
    RunConfig config = config_of(layout);
    const Reference& expected = reference(config);
    config.mesh = layout.mesh;
    if (layout.change) layout.change(config);
    config.dump_step0 = (folder().path() / "found.safetensors").string();
    const RanksResult found = train_on_ranks(config);
    for (const Recorder& rank : found.listeners) expect_same_training(expected.recorder, rank);
    expect_same_gradients(expected.dump, config.dump_step0);
}

// Without a dump the head is fused with its loss, and logits are never whole.
TEST_P(Equality, OfOneProcessWithoutLookingOn) {
    const Layout& layout = GetParam();
    RunConfig config = config_of(layout);
    const Reference& expected = reference(config);
    config.mesh = layout.mesh;
    if (layout.change) layout.change(config);
    expect_same_training(expected.recorder, train_on_ranks(config).listeners[0]);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Equality, testing::ValuesIn(layouts()), [](const auto& layout) {
    std::string name = layout.param.model + layout.param.name;
    std::erase_if(name, [](char c) { return c == '_' || c == '-'; });
    return name;
});

} // namespace
} // namespace tutti::test

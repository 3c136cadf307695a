// Every style of sharing operators, told by a plan file, against one process: losses, norms, and every gradient.
#include "run_ranks.h"

#include "base/error.h"
#include "base/file.h"
#include "resolve/pipeline_plan.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "sharding/styles.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti::test {

using namespace models;
using namespace resolve;
using namespace run;
using namespace schedule;
using namespace sharding;
using namespace testing;
using namespace train;
namespace {

using namespace tutti::testing;

struct Chosen {
    std::string name, model;
    Mesh mesh;
    Style style;
    std::function<void(RunConfig&)> change = [](RunConfig&) {};
    bool dropout = false;
};

void PrintTo(const Chosen& chosen, std::ostream* out) { *out << chosen.model << ' ' << chosen.name; }

std::vector<Chosen> all() {
    auto plain = [](RunConfig& config) { config.sequence_parallel = false; };
    auto halves = [](RunConfig& config) { config.sub_pipeline = true; };
    auto recompute = [](RunConfig& config) { config.recompute.share = 1; };
    auto zero = [](RunConfig& config) { config.zero = 1; };
    auto zero_bubble = [](RunConfig& config) { config.schedule = "zb-1p"; };
    std::vector<Chosen> some;
    for (const char* model : {"gpt2", "llama"}) {
        some.push_back({"ByBatch", model, {.tensor = 2}, by_batch(2)});
        some.push_back({"Mixed", model, {.tensor = 2}, mixed(2)});
        some.push_back({"BatchAndHeads", model, {.tensor = 4}, batch_and_heads(2, 2)});
        some.push_back({"BySequence", model, {.tensor = 2}, by_sequence(2)});
        some.push_back({"KeptGathered", model, {.tensor = 2}, by_columns(2, true, false)});
        some.push_back({"ReducedAtOnce", model, {.tensor = 2}, by_columns(2, false, true), plain});
    }
    some.push_back({"PipeBatch", "gpt2", {.pipe = 2, .tensor = 2}, by_batch(2)});
    some.push_back({"ZeroBubble", "llama", {.pipe = 2, .tensor = 2}, by_batch(2), zero_bubble});
    some.push_back({"PipeMixed", "gpt2", {.pipe = 3, .tensor = 2}, mixed(2), recompute});
    // The tied table: looked up by everybody, or split by words, and multiplied with by samples, in stages of one rank.
    auto folded = [](RunConfig& config) { config.schedule = "zb-v"; };
    auto by_head = [](Way embedding) {
        return Style{
            {2}, [=](const OperatorName& name, std::size_t) {
                return name.source == "lm_head" ? Way::batch : name.op == "embedding" ? embedding : Way::follow;
            }};
    };
    some.push_back({"TiedEverywhere", "gpt2", {.pipe = 2, .tensor = 2}, by_head(Way::everywhere), folded});
    some.push_back({"TiedByWords", "gpt2", {.pipe = 2, .tensor = 2}, by_head(Way::follow), folded});
    some.push_back({"AllSpread", "gpt2", {.tensor = 2}, all_sharded({2})});
    some.push_back({"AllSpreadTwice", "gpt2", {.tensor = 4}, all_sharded({2, 2}), {}, true});
    some.push_back({"Four", "gpt2", {.tensor = 4}, by_batch(4), {}, true});
    some.push_back({"Three", "gpt2", {.tensor = 3}, by_sequence(3), {}, true});
    some.push_back({"HalvesBatch", "gpt2", {.pipe = 2, .tensor = 2}, by_batch(2), halves, true});
    some.push_back({"HalvesMixed", "llama", {.tensor = 2}, mixed(2), halves});
    some.push_back({"All", "llama", {.pipe = 2, .data = 2, .tensor = 2}, mixed(2), zero});
    some.push_back({"All", "bert", {.data = 2, .tensor = 4}, batch_and_heads(2, 2), zero, true});
    return some;
}

class Strategies : public ::testing::TestWithParam<Chosen> {
  protected:
    static RunConfig config_of(const Chosen& chosen) {
        RunConfig config = small_run(chosen.model);
        if (chosen.dropout) {
            static std::map<std::string, fs::path> models;
            fs::path& model = models[chosen.model];
            if (model.empty()) model = with_dropout(chosen.model, folder());
            config.model = model.string();
        }
        return config;
    }

    static const Recorder& reference(const RunConfig& config, fs::path& dump) {
        struct Reference {
            Recorder recorder;
            fs::path dump;
        };
        static std::map<std::string, Reference> references;
        const auto [at, is_new] = references.try_emplace(config.model);
        if (is_new) {
            RunConfig one = config;
            one.dump_step0 = (folder().path() / fmt::format("one-{}.safetensors", references.size())).string();
            at->second.dump = one.dump_step0;
            const std::atomic<bool> stop = false;
            train::train(one, at->second.recorder, stop);
        }
        dump = at->second.dump;
        return at->second.recorder;
    }

    static const TemporaryFolder& folder() {
        static const TemporaryFolder folder;
        return folder;
    }
};

// The config with a plan file that says what flags cannot.
RunConfig planned(const Chosen& chosen, RunConfig config, const TemporaryFolder& folder) {
    config.mesh = chosen.mesh;
    config.workload.micro_batch = 4;
    if (chosen.change) chosen.change(config);
    const Model model =
        open_model(config.model).build({config.workload.micro_batch, config.workload.sequence, DType::float32});
    Plan plan;
    plan.model = model.architecture;
    plan.device = config.device;
    plan.workload = {config.workload.sequence, config.workload.global_batch, config.workload.micro_batch};
    plan.mesh = chosen.mesh;
    plan.chunk_elements = 1 << 14;
    plan.zero = config.zero;
    plan.sequence_parallel = config.sequence_parallel;
    plan.sub_pipeline = config.sub_pipeline;
    plan.strategies = choose(model.graph, chosen.style);
    std::optional<ScheduleParameters> asked;
    if (chosen.mesh.pipe > 1) asked = schedule_parameters(config, plan.micro_batches());
    plan_pipeline(plan, model.graph, asked, config.recompute, {});
    config.plan = (folder.path() / "plan.json").string();
    write_text_atomically(config.plan, to_json(plan));
    return with_plan(config, read_plan(config.plan));
}

TEST_P(Strategies, EqualOneProcess) {
    const Chosen& chosen = GetParam();
    const RunConfig config = config_of(chosen);
    fs::path dump;
    const Recorder& expected = reference(config, dump);
    RunConfig ranks = planned(chosen, config, folder());
    ranks.dump_step0 = (folder().path() / "found.safetensors").string();
    const RanksResult found = train_on_ranks(ranks);
    for (const Recorder& rank : found.listeners) expect_same_training(expected, rank);
    expect_same_gradients(dump, ranks.dump_step0);
}

INSTANTIATE_TEST_SUITE_P(Styles, Strategies, ::testing::ValuesIn(all()),
                         [](const auto& one) { return one.param.model + one.param.name; });

// Checkpoints hold whole tensors: every step goes on with what other strategies have left.
TEST(StrategiesOfARun, MayChangeWhenItResumes) {
    const TemporaryFolder folder;
    RunConfig config = small_run("llama");
    config.workload.micro_batch = 4;
    config.eval_every = 1;
    config.eval_batches = 2; // micro-batches
    const std::atomic<bool> stop = false;
    Recorder expected, found;
    train::train(config, expected, stop);
    config.output = (folder / "run").string();
    config.stop_after = 1;
    const std::vector<Chosen> legs = {{"", "llama", {.tensor = 2}, mixed(2)},
                                      {"", "llama", {.tensor = 4}, batch_and_heads(2, 2)},
                                      {"", "llama", {.tensor = 4}, by_batch(4)},
                                      {"", "llama", {.tensor = 2}, by_sequence(2)}};
    for (const Chosen& leg : legs) {
        const Recorder one = train_on_ranks(planned(leg, config, folder)).listeners[0];
        found.steps.insert(found.steps.end(), one.steps.begin(), one.steps.end());
        found.evaluations.insert(found.evaluations.end(), one.evaluations.begin(), one.evaluations.end());
        config.resume = true;
    }
    expect_same_training(expected, found);
    ASSERT_EQ(found.evaluations.size(), expected.evaluations.size());
    for (std::size_t i = 0; i < found.evaluations.size(); ++i)
        EXPECT_NEAR(found.evaluations[i], expected.evaluations[i], 3e-6 * expected.evaluations[i]);
}

TEST(StrategiesOfARun, ThatDoNotFitAreRefused) {
    const TemporaryFolder folder;
    auto refusal = [&](const Style& style, const std::function<void(OperatorStrategies&)>& change) -> std::string {
        RunConfig config = planned({"", "gpt2", {.tensor = style.axes[0]}, style}, small_run("gpt2"), folder);
        Plan plan = read_plan(config.plan);
        change(*plan.strategies);
        write_text_atomically(config.plan, to_json(plan));
        try {
            train_on_ranks(config);
        } catch (const Error& error) {
            return error.what();
        }
        return "it ran";
    };
    // The plan's file and the model's folder are named first.
    auto ends = [](const std::string& sentence, const std::string& end) {
        EXPECT_TRUE(sentence.ends_with(": " + end)) << sentence;
        EXPECT_NE(sentence.find("plan.json does not fit"), std::string::npos) << sentence;
    };
    EXPECT_EQ(refusal(by_batch(8), [](OperatorStrategies&) {}),
              "embedding at transformer.wte cannot be split by r0 over the 8 ranks of the tensor axis: its size is 4");
    ends(refusal(by_batch(2), [](OperatorStrategies& all) { all.operators[0].split = {"z"}; }),
         "strategies split \"embedding\" 0 of \"transformer.wte\" by \"z\"; its loops are v, h, r0, r1");
    ends(refusal(by_batch(2), [](OperatorStrategies& all) { all.operators[0].name.ordinal = 3; }),
         "strategies name \"embedding\" 3 of \"transformer.wte\", which is not in the model: there are embedding");
    ends(refusal(by_batch(2), [](OperatorStrategies& all) { all.tensors[0].name = "wte"; }),
         "strategies name the tensor \"wte\", which is not in the model");
}

} // namespace
} // namespace tutti::test

#include "planner/strategies/model.h"

#include "base/error.h"
#include "compile/graphs/step_graph.h"
#include "graph/autodiff.h"
#include "models/model.h"
#include "ops/operators.h"
#include "planner/strategies/baselines.h"
#include "planner/strategies/stages.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti::planner::strategies {

using namespace compile;
using namespace costs;
using namespace models;
using namespace ops;
using namespace sharding;
namespace {

constexpr std::int64_t heads = 8, hidden = 256, sequence = 64;

nlohmann::json gpt(std::int64_t layers, double dropout = 0) {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", 512},
            {"n_positions", sequence},
            {"n_embd", hidden},
            {"n_layer", layers},
            {"n_head", heads},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", dropout},
            {"layer_norm_epsilon", 1e-5},
            {"tie_word_embeddings", true}};
}

nlohmann::json llama(std::int64_t layers) {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 512},
            {"max_position_embeddings", sequence},
            {"hidden_size", hidden},
            {"intermediate_size", 3 * hidden},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"num_key_value_heads", heads},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-5},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
            {"tie_word_embeddings", false}};
}

// Links fast enough that such small layers are worth splitting.
Cluster cluster() {
    DeviceKind device = *find_device_preset("h100");
    device.flops16 = 1e13;
    device.bandwidth = 1e12;
    device.launch = 0;
    const LinkSpeed link{1e-9, 1e12};
    return uniform_cluster({device, 8, link, {std::int64_t{1} << 40}, link}, 1, {});
}

Graph step_of(const nlohmann::json& config, std::int64_t batch) {
    Model model = ModelSource(config, "test").build({batch, sequence, DType::bfloat16});
    return differentiated(std::move(model.graph), false);
}

struct Built {
    Graph step;
    Cluster on = cluster();
    RooflineCost costs;
    StrategyModel model;

    Built(Graph graph, const ModelOptions& options)
        : step(std::move(graph)), costs(on, step.operators()), model(step, costs, options) {}
};

ModelOptions over(std::vector<int> axes) {
    ModelOptions options;
    options.axes = std::move(axes);
    options.precision = {DType::bfloat16, DType::float32, DType::float32, DType::float32};
    return options;
}

// What one more layer keeps for the backward.
std::int64_t saved_per_layer(const std::function<Graph(std::int64_t layers)>& graph, int ranks,
                             Baseline (*baseline)(const StrategyModel&)) {
    std::int64_t saved[2];
    for (const std::int64_t layers : {3, 4}) {
        const Built built(graph(layers), over({ranks}));
        const Baseline found = baseline(built.model);
        if (!found.solution) ADD_FAILURE() << found.reason;
        saved[layers - 3] = built.model.outcome(*found.solution).saved.count;
    }
    return saved[1] - saved[0];
}

// Beside what the formulas count: two norms' mean and reciprocal deviation, and the logarithms of attention's sums.
std::int64_t statistics(std::int64_t norms_split, std::int64_t ranks) {
    return sequence * (4 * 4 / norms_split + 4 * heads / ranks);
}

// The share of a layer's activations that sequence parallelism saves over tensor parallelism, on eight ranks.
double saved_by_sequence(const std::function<Graph(std::int64_t layers)>& graph) {
    const auto plain = static_cast<double>(saved_per_layer(graph, 8, tensor_parallelism) - statistics(1, 8));
    const auto split = static_cast<double>(saved_per_layer(graph, 8, sequence_parallelism) - statistics(8, 8));
    return 1 - split / plain;
}

TEST(Formulas, OurLayersKeepEightAndTwentyFourBytes) {
    auto graph = [](std::int64_t layers) { return step_of(gpt(layers), 1); };
    const std::int64_t unit = sequence * hidden;
    for (const int t : {2, 4, 8}) {
        EXPECT_EQ(saved_per_layer(graph, t, tensor_parallelism), unit * (8 + 24 / t) + statistics(1, t));
        EXPECT_EQ(saved_per_layer(graph, t, sequence_parallelism), unit * 32 / t + statistics(t, t));
    }
    EXPECT_NEAR(saved_by_sequence(graph), 0.636, 0.0005);
}

// A dropout as frameworks have it, that keeps a mask of a byte per element.
OperatorSet with_masks() {
    std::vector<Operator> all(all_operators().all().begin(), all_operators().all().end());
    Operator dropout = all_operators().at("dropout");
    dropout.name = "masked_dropout";
    dropout.infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
        return {in[0], {DType::boolean, in[0].shape}};
    };
    dropout.loops = [](Types in, const Attributes&) {
        std::string dims;
        for (int d = 0; d < in[0].shape.rank(); ++d) dims += " l" + std::to_string(d);
        return dims + " ->" + dims + "," + dims;
    };
    dropout.gradient = [](GradientBuilder& g) {
        g.set(0, g.emit("masked_dropout_gradient", {g.gradient(), g.output(1)}));
    };
    dropout.part = {};
    Operator gradient = dropout;
    gradient.name = "masked_dropout_gradient";
    gradient.infer = [](Types in, const Attributes&) -> std::vector<TensorType> { return {in[0]}; };
    gradient.loops = [](Types in, const Attributes&) {
        std::string dims;
        for (int d = 0; d < in[0].shape.rank(); ++d) dims += " l" + std::to_string(d);
        return dims + "," + dims + " ->" + dims;
    };
    gradient.gradient = {};
    all.push_back(dropout);
    all.push_back(gradient);
    return OperatorSet(std::move(all));
}

// The forward graph with other operators for some of its own.
Graph replaced(const Graph& graph, const OperatorSet& operators, const std::map<std::string_view, std::string>& by) {
    Graph result(operators);
    std::vector<ValueId> renamed(graph.values().size(), ValueId::none);
    for (const StoredTensor& stored : graph.stored()) result.add_stored(stored.name, stored.type);
    for (ValueId input : graph.inputs())
        renamed[index(input)] = result.add_input(graph.value(input).name, graph.type(input));
    for (const Parameter& parameter : graph.parameters())
        renamed[index(parameter.value)] =
            result.add_parameter(parameter.stored, graph.shape(parameter.value), graph.value(parameter.value).layout);
    for (const Node& node : graph.nodes()) {
        std::vector<ValueId> inputs;
        for (ValueId input : node.inputs) inputs.push_back(renamed[index(input)]);
        const auto other = by.find(node.op->name);
        const NodeId added = result.add_node(other == by.end() ? std::string(node.op->name) : other->second, inputs,
                                             node.attributes, node.source);
        for (std::size_t o = 0; o < node.outputs.size(); ++o)
            renamed[index(node.outputs[o])] = result.node(added).outputs[o];
    }
    for (const Output& output : graph.outputs()) result.add_output({output.name, renamed[index(output.value)]});
    return result;
}

TEST(Formulas, MaskSavingDropoutGivesTheNumbersOfTheLiterature) {
    static const OperatorSet operators = with_masks();
    auto graph = [](std::int64_t layers) {
        const Model model = ModelSource(gpt(layers, 0.1), "test").build({1, sequence, DType::bfloat16});
        return differentiated(replaced(model.graph, operators, {{"dropout", "masked_dropout"}}), false);
    };
    const std::int64_t unit = sequence * hidden;
    for (const int t : {2, 4, 8}) {
        EXPECT_EQ(saved_per_layer(graph, t, tensor_parallelism), unit * (10 + 24 / t) + statistics(1, t));
        EXPECT_EQ(saved_per_layer(graph, t, sequence_parallelism), unit * 34 / t + statistics(t, t));
    }
    EXPECT_NEAR(saved_by_sequence(graph), 0.673, 0.0005);
}

std::map<std::string, const StrategyModel::Option*> by_name(const StrategyModel& model, const Solution& solution) {
    std::map<std::string, const StrategyModel::Option*> result;
    for (std::size_t v = 0; v < model.vertices().size(); ++v) {
        const Graph& graph = model.graph();
        if (model.vertices()[v].group < 0) continue;
        const Group& group = model.structure().groups[static_cast<std::size_t>(model.vertices()[v].group)];
        result[group.name + " " + std::string(graph.node(group.members[0].node).op->name)] =
            &model.vertices()[v].options[static_cast<std::size_t>(solution.options[v])];
    }
    return result;
}

TEST(Plans, OneSampleRediscoversTensorAndSequenceParallelism) {
    const Built built(step_of(gpt(4), 1), over({8}));
    const StagesResult found = solve_stages(built.model.problem());
    const auto chosen = by_name(built.model, found.points.front().solution);
    const std::string layer = "transformer.h.*";
    using Words = std::vector<std::string>;
    EXPECT_EQ(chosen.at(layer + ".ln_1 layer_norm")->item.split, Words{"r1"});
    EXPECT_EQ(chosen.at(layer + ".attn.c_attn linear")->item.split, Words{"n"});
    EXPECT_EQ(chosen.at(layer + ".attn attention")->item.split, Words{"g"});
    EXPECT_EQ(chosen.at(layer + ".attn.c_proj linear")->item.split, Words{"k"});
    EXPECT_EQ(chosen.at(layer + ".mlp.c_fc linear")->item.split, Words{"n"});
    EXPECT_EQ(chosen.at(layer + ".mlp gelu")->item.split, Words{"r2"});
    EXPECT_EQ(chosen.at(layer + ".mlp.c_proj linear")->item.split, Words{"k"});
    EXPECT_EQ(chosen.at(layer + " add")->item.outputs[0], States{1});
    EXPECT_FALSE(chosen.at(layer + ".attn.c_attn linear")->keep); // gathered again
    EXPECT_FALSE(chosen.at(layer + ".mlp.c_fc linear")->keep);
    // Faster plans keep what they gathered.
    EXPECT_TRUE(by_name(built.model, found.points.back().solution).at(layer + ".mlp.c_fc linear")->keep);
    EXPECT_GT(found.points.size(), 2U);

    const Baseline by_hand = sequence_parallelism(built.model), plain = tensor_parallelism(built.model);
    ASSERT_TRUE(by_hand.solution && plain.solution);
    EXPECT_LE(found.least_redundancy(), by_hand.solution->redundancy);
    EXPECT_LT(by_hand.solution->redundancy, plain.solution->redundancy);
    EXPECT_LE(found.points.back().solution.time, plain.solution->time);
    EXPECT_FALSE(zero3(built.model).solution);
}

TEST(Plans, ManySamplesFindSpreadWeightsAndMixedPlans) {
    for (const nlohmann::json& config : {gpt(4), llama(4)}) {
        const Built built(step_of(config, 16), over({8}));
        const StagesResult found = solve_stages(built.model.problem());
        bool mixed = false;
        for (const ParetoPoint& point : found.points) {
            bool sharded = false, products = false;
            for (const auto& [name, option] : by_name(built.model, point.solution)) {
                if (!name.starts_with("lm_head") && name.ends_with(" linear")) {
                    sharded = sharded || (option->item.split[0] == "r0" && option->held[0]);
                    products = products || option->item.split[0] == "n";
                }
            }
            mixed = mixed || (sharded && products);
        }
        EXPECT_TRUE(mixed);
        const Baseline zero = zero3(built.model);
        ASSERT_TRUE(zero.solution) << zero.reason;
        EXPECT_LE(found.least_redundancy(), zero.solution->redundancy);
    }
    // With still more samples, nothing but spread weights is left where memory goes first.
    const Built built(step_of(llama(4), 64), over({8}));
    const StagesResult found = solve_stages(built.model.problem());
    for (const auto& [name, option] : by_name(built.model, found.points.front().solution))
        if (name.starts_with("model.layers") && name.ends_with(" linear")) {
            EXPECT_TRUE(option->item.split[0] == "r0" && option->held[0]) << name;
        }
}

void expect_agreement(const StrategyModel& model) {
    const Elimination front = pareto_front(model.problem());
    ASSERT_TRUE(front.solved) << front.reason;
    const ProgramResult least = solve_program(model.problem(), {Goal::Least::redundancy});
    const ProgramResult fastest = solve_program(model.problem(), {Goal::Least::time});
    ASSERT_TRUE(least.solution && fastest.solution);
    EXPECT_EQ(least.solution->redundancy, front.front.front().redundancy);
    EXPECT_EQ(fastest.solution->time, front.front.back().time);
    const Amount bound = redundancy_bound(front.front.front().redundancy, front.front.back().redundancy, 0.3);
    const ProgramResult between = solve_program(model.problem(), {Goal::Least::time, bound});
    Amount fast = forbidden;
    for (const Solution& solution : front.front)
        if (solution.redundancy <= bound) fast = std::min(fast, solution.time);
    EXPECT_EQ(between.solution->time, fast);
}

TEST(Plans, SolversAgreeOnModels) {
    for (const nlohmann::json& config : {gpt(2), llama(2)}) {
        const Built built(step_of(config, 4), over({4}));
        expect_agreement(built.model);
    }
    const Built built(step_of(gpt(2), 1), over({2, 2}));
    expect_agreement(built.model);
}

TEST(Model, WeightsAndActivationsAddUp) {
    // On one rank nothing is there twice, and all of it is there.
    const Built one(step_of(llama(2), 2), over({1}));
    const StagesResult found = solve_stages(one.model.problem());
    ASSERT_EQ(found.points.size(), 1U);
    std::int64_t parameters = 0;
    for (const StoredTensor& stored : one.step.stored()) parameters += stored.type.elements();
    const Outcome outcome = one.model.outcome(found.points[0].solution);
    EXPECT_EQ(outcome.redundancy.count, 0);
    EXPECT_EQ(outcome.states.count, 18 * parameters);

    // Spread without redundancy, a rank has its share of the states; micro-batches in flight multiply activations.
    ModelOptions options = over({4});
    const Built four(step_of(llama(2), 4), options);
    options.in_flight = 3;
    const Built flying(step_of(llama(2), 4), options);
    const Outcome a = four.model.outcome(solve_stages(four.model.problem()).points[0].solution);
    EXPECT_EQ(a.redundancy.count, 0);
    EXPECT_EQ(a.states.count, 18 * parameters / 4);
    const Outcome b = flying.model.outcome(solve_stages(flying.model.problem()).points[0].solution);
    EXPECT_EQ(b.saved.count, 3 * a.saved.count);
}

TEST(Model, TiedTablesAreCountedOnce) {
    const Built built(step_of(gpt(2), 1), over({4}));
    std::int64_t parameters = 0;
    for (const StoredTensor& stored : built.step.stored()) parameters += stored.type.elements();
    const Outcome outcome = built.model.outcome(solve_stages(built.model.problem()).points[0].solution);
    EXPECT_NEAR(static_cast<double>(outcome.states.count), 18.0 * static_cast<double>(parameters) / 4,
                0.001 * static_cast<double>(outcome.states.count));
}

TEST(Model, ChoicesNameEveryOperatorOfTheModel) {
    const Built built(step_of(gpt(3), 1), over({2, 2}));
    for (const ParetoPoint& point : solve_stages(built.model.problem()).points) {
        const OperatorStrategies strategies = built.model.operator_strategies(point.solution);
        check(strategies, 4);
        check(strategies, built.step);
        EXPECT_EQ(strategies.axes, (std::vector{2, 2}));
    }
}

TEST(Model, CapsHoldByLiveness) {
    ModelOptions options = over({4});
    options.memory_cap = Bytes{std::int64_t{1} << 40};
    const Built wide(step_of(gpt(3), 1), options);
    const ProgramResult least = solve_program(wide.model.problem(), {Goal::Least::peak});
    ASSERT_TRUE(least.solution);
    const ProgramResult fastest = solve_program(wide.model.problem(), {Goal::Least::time});
    ASSERT_GT(fastest.solution->peak, least.solution->peak);
    options.memory_cap = Bytes{(fastest.solution->peak + least.solution->peak) / 2};
    const Built narrow(step_of(gpt(3), 1), options);
    const ProgramResult between = solve_program(narrow.model.problem(), {Goal::Least::time});
    ASSERT_EQ(between.status, ProgramResult::Status::optimal);
    EXPECT_LE(between.solution->peak, options.memory_cap->count);
    EXPECT_GE(between.solution->time, fastest.solution->time);
    options.memory_cap = Bytes{least.solution->peak - 1};
    const Built none(step_of(gpt(3), 1), options);
    EXPECT_THROW(solve_stages(none.model.problem()), Error);
}

TEST(Model, AxesThatNothingCanUseAreAnError) {
    try {
        const Built built(step_of(gpt(1), 1), over({8191}));
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("no operator of the model can be split over 8191 ranks"),
                  std::string::npos)
            << error.what();
    }
}

TEST(Model, OperatorsWithoutLoopsAreWholeAndNamed) {
    static const OperatorSet set = [] {
        std::vector<Operator> all(all_operators().all().begin(), all_operators().all().end());
        Operator odd = all_operators().at("gelu");
        odd.name = "odd";
        odd.loops = {};
        all.push_back(odd);
        return OperatorSet(std::move(all));
    }();
    const Model model = ModelSource(gpt(2), "test").build({1, sequence, DType::bfloat16});
    const Built built(differentiated(replaced(model.graph, set, {{"gelu", "odd"}}), false), over({4}));
    ASSERT_EQ(built.model.warnings().size(), 1U);
    EXPECT_EQ(built.model.warnings()[0],
              "odd at transformer.h.0.mlp does not say which loops it has: every rank computes all of it");
    const auto chosen = by_name(built.model, solve_stages(built.model.problem()).points[0].solution);
    EXPECT_EQ(chosen.at("transformer.h.*.mlp odd")->item.split, std::vector<std::string>{"none"});
}

} // namespace
} // namespace tutti::planner::strategies

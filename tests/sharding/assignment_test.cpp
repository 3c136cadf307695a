// Any assignment whatever is lowered rightly: strategies, parts and states are drawn at random, for whole models and
// for every operator by itself; and graphs that are sharded already are sharded again.
#include "operators/operator_cases.h"
#include "ops/operators.h"
#include "sharding/compare.h"
#include "sharding/families.h"
#include "sharding/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::testing {

using namespace models;
using namespace ops;
using namespace sharding;
namespace {

// As small as they get: every trial runs the whole step.
Model small_model(const std::string& family) {
    nlohmann::json settings = {{"num_attention_heads", 4},
                               {"num_key_value_heads", 2},
                               {"head_dim", 4},
                               {"hidden_size", 32},
                               {"num_hidden_layers", 1},
                               {"intermediate_size", 12},
                               {"vocab_size", 10},
                               {"n_head", 4},
                               {"n_embd", 24},
                               {"n_layer", 1},
                               {"n_inner", 12},
                               {"max_position_embeddings", 8},
                               {"n_positions", 8},
                               {"partial_rotary_factor", 0.5}};
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout"})
        settings[key] = 0.2;
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) settings[key] = nullptr;
    return build(family, {2, 4, DType::float64}, settings);
}

TEST(RandomAssignments, GiveTheNumbersOfOneDevice) {
    for (const char* family : {"gpt2", "llama", "gpt_neox"}) {
        const Graph step = step_graph(small_model(family));
        const Numbers numbers = draw_numbers(step);
        for (std::uint32_t trial = 0; trial < 40; ++trial) {
            const int ranks = 2 + static_cast<int>(trial % 2);
            SCOPED_TRACE(fmt::format("{}, trial {}", family, trial));
            const Assignment assignment = Random(trial).assignment(step, ranks, Cut::scattered);
            const ShardedMesh mesh =
                shard_mesh(step, {{"tensor", 0, ranks}}, [&](const Graph&, const AxisPlace&) { return assignment; });
            EXPECT_EQ(differences(step, mesh, numbers), std::vector<std::string>{});
        }
    }
}

TEST(TwoAxes, GiveTheNumbersOfOneDevice) {
    for (const char* family : {"gpt2", "llama", "bert"}) {
        const Graph step = step_graph(build(family, {2, 6, DType::float64},
                                            {{"num_hidden_layers", 1}, {"n_layer", 1}, {"num_key_value_heads", 4}}));
        for (bool first : {false, true})
            for (bool second : {false, true}) {
                SCOPED_TRACE(fmt::format("{}, sequence parallel: {} {}", family, first, second));
                const ShardedMesh mesh = shard_mesh(
                    step, {{"outer", 0, 2}, {"inner", 0, 2}}, [&](const Graph& graph, const AxisPlace& place) {
                        return default_assignment(graph, place, {place.axis == "outer" ? first : second, {}});
                    });
                EXPECT_EQ(differences(step, mesh), std::vector<std::string>{});
            }
    }
}

// Along the first axis every rank's graph has the same nodes and sizes, so that a seed means the same along the second.
TEST(TwoAxes, MayBeAssignedAtRandom) {
    const Graph step = step_graph(small_model("gpt2"));
    const Numbers numbers = draw_numbers(step);
    for (std::uint32_t trial = 0; trial < 16; ++trial) {
        SCOPED_TRACE(trial);
        const ShardedMesh mesh =
            shard_mesh(step, {{"outer", 0, 2}, {"inner", 0, 2}}, [&](const Graph& graph, const AxisPlace& place) {
                const bool outer = place.axis == "outer";
                return Random(2 * trial + outer).assignment(graph, place.size, outer ? Cut::even : Cut::uneven);
            });
        EXPECT_EQ(differences(step, mesh, numbers), std::vector<std::string>{});
    }
}

// A graph of one node, its inputs in any states.
class OneOperator {
  public:
    explicit OneOperator(const Case& one) : graph_(all_operators()) {
        std::vector<ValueId> inputs;
        const auto tensors = make_inputs(one, DType::float64);
        for (const HostTensor& tensor : *tensors) {
            inputs.push_back(graph_.add_input(fmt::format("x{}", inputs.size()), tensor.type));
            numbers_.inputs.push_back(tensor.values());
        }
        const NodeId node = graph_.add_node(one.op(), inputs, attributes_of(one, DType::float64), case_source);
        for (ValueId output : graph_.node(node).outputs) graph_.add_output({"y", output, ValueId::none});
    }

    const Node& node() const { return graph_.nodes().back(); }

    void expect_same(const Strategy& strategy, int ranks, Random& random) const {
        Assignment assignment;
        for (ValueId input : graph_.inputs())
            assignment.inputs.push_back(random.state(graph_.shape(input), ranks, Cut::scattered));
        assignment.nodes.resize(graph_.nodes().size());
        assignment.nodes.back() = strategy;
        assignment.outputs.resize(graph_.outputs().size());
        const ShardedMesh mesh =
            shard_mesh(graph_, {{"tensor", 0, ranks}}, [&](const Graph&, const AxisPlace&) { return assignment; });
        EXPECT_EQ(differences(graph_, mesh, numbers_), std::vector<std::string>{});
    }

    // All that strategies_of offers, and random parts of each loop.
    int try_all(int ranks, Random& random) const {
        std::vector<Strategy> strategies = strategies_of(graph_, static_cast<NodeId>(graph_.nodes().size() - 1), ranks);
        for (const Strategy& strategy : std::vector(strategies)) {
            EXPECT_TRUE(placement_of(graph_, node(), strategy, ranks).has_value());
            if (strategy.loop < 0) continue;
            const auto parts = random.parts(count(strategy.parts), ranks, Cut::scattered);
            const Strategy other = Strategy::split(strategy.loop, *parts);
            if (placement_of(graph_, node(), other, ranks)) strategies.push_back(other);
        }
        for (const Strategy& strategy : strategies) {
            SCOPED_TRACE(fmt::format("loop {} over {} ranks", strategy.loop, ranks));
            expect_same(strategy, ranks, random);
        }
        return static_cast<int>(strategies.size()) - 1;
    }

  private:
    Graph graph_;
    Numbers numbers_;
};

TEST(Strategies, OfEveryOperatorGiveItsNumbers) {
    std::set<std::string> never;
    for (const Operator& op : all_operators().all()) never.insert(std::string(op.name));
    Random random(1);
    for (const Case& one : operator_cases()) {
        const Operator& op = all_operators().at(one.op());
        const bool steps = one.op() == "adamw" || one.op() == "finish_norm"; // change what is not theirs to return
        std::int64_t elements = 0;
        for (const Argument& input : one.inputs) elements += input.shape.elements();
        if (op.collective || steps || elements > 4000) continue;
        SCOPED_TRACE(one.name);
        const OneOperator alone(one);
        for (int ranks : {2, 3})
            if (alone.try_all(ranks, random) > 0) never.erase(one.op());
    }
    EXPECT_EQ(never, (std::set<std::string>{"adamw", "all_gather", "all_reduce", "all_to_all", "finish_norm",
                                            "reduce_scatter", "step_scalar", "sum_step"}));
}

} // namespace
} // namespace tutti::testing

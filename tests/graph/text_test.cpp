#include "graph/text.h"

#include "count.h"
#include "graph/autodiff.h"
#include "graph/passes.h"
#include "graph/verify.h"
#include "ops/operators.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace ops;
namespace {

// A tied two-layer model with every kind of line: stored, input, strided parameter, attributes, views, backward,
// gradients.
Graph example() {
    Graph graph(all_operators());
    const ValueId ids = graph.add_input("input_ids", {DType::int64, {2, 3}});
    const ValueId targets = graph.add_input("targets", {DType::int64, {2, 3}});
    const std::int32_t table = graph.add_stored("wte \"quoted\"", {DType::float32, {11, 4}});
    const std::int32_t conv = graph.add_stored("c_fc", {DType::float32, {4, 6}});
    const ValueId embedding = graph.add_parameter(table);
    const ValueId weight = graph.add_parameter(conv, {6, 4}, {{1, 6}, 0});
    ValueId x = graph.add("embedding", {embedding, ids}, {}, "wte");
    x = graph.add("linear", {x, weight}, {}, "c_fc");
    x = graph.add("gelu", {x}, {{"tanh", true}}, "act");
    const NodeId halves =
        graph.add_node("split", {x}, {{"dim", std::int64_t{2}}, {"sizes", std::vector<std::int64_t>{4, 2}}});
    x = graph.add("dropout", {graph.node(halves).outputs[0]}, {{"p", 0.25}}, "drop");
    const ValueId logits = graph.add("linear", {x, embedding}, {}, "head");
    const ValueId loss = graph.add("cross_entropy", {logits, targets}, {{"ignore_index", std::int64_t{-100}}}, "loss");
    graph.add_output({"logits", logits, ValueId::none});
    graph.add_output({"loss", loss, ValueId::none});
    graph.begin(Phase::backward);
    const ValueId seed =
        graph.add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", std::string("float32")}});
    differentiate(graph, loss, seed);
    return graph;
}

TEST(GraphText, ReadingBackWhatWasPrintedGivesTheSameText) {
    const std::string text = to_text(example());
    EXPECT_EQ(to_text(parse_graph(text, all_operators())), text);
    EXPECT_NE(text.find("backward\n"), std::string::npos);
    EXPECT_NE(text.find("strides [1,6] offset 0"), std::string::npos);
}

TEST(GraphText, AttributesKeepTheirKindAndEveryDigit) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("x", {DType::float32, {4}});
    const Attributes attributes = {
        {"p", 0.1 + 0.2}, {"whole", std::vector<std::int64_t>{}}, {"first_sample", std::int64_t{-7}}};
    graph.add_output({"y", graph.add("dropout", {x}, attributes, "a \\ b"), ValueId::none});
    const Graph again = parse_graph(to_text(graph), all_operators());
    EXPECT_EQ(again.nodes()[0].attributes, attributes);
    EXPECT_EQ(again.nodes()[0].source, "a \\ b");
}

TEST(GraphText, PhasesAndBlocksArePrintedAndRead) {
    Graph graph(all_operators());
    ValueId x = graph.add_input("x", {DType::float32, {4}});
    for (const Phase phase : {Phase::forward, Phase::recompute, Phase::backward}) {
        graph.begin(phase);
        x = graph.add("exp", {x}, {}, "outside");
        graph.set_block(phase == Phase::forward ? 0 : 17);
        x = graph.add("exp", {x});
        graph.set_block(-1);
    }
    graph.add_output({"y", x, ValueId::none});
    const std::string text = to_text(graph);
    EXPECT_NE(text.find("recompute\n%3"), std::string::npos) << text;
    EXPECT_NE(text.find("backward\n%5"), std::string::npos) << text;
    EXPECT_NE(text.find("exp(%3) #17\n"), std::string::npos) << text;
    const Graph again = parse_graph(text, all_operators());
    EXPECT_EQ(to_text(again), text);
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
        EXPECT_EQ(again.nodes()[i].phase, graph.nodes()[i].phase);
        EXPECT_EQ(again.nodes()[i].block, graph.nodes()[i].block);
    }
    for (const char* line : {"%1: float32[4] = exp(%0) #-2", "%1: float32[4] = exp(%0) #99999999999"})
        EXPECT_THROW(parse_graph(std::string("input %0 \"x\": float32[4]\n") + line, all_operators()), Error) << line;
    EXPECT_THROW(parse_graph("input %0 \"x\": float32[4]\nbackward\n%1: float32[4] = exp(%0)\nrecompute\n"
                             "%2: float32[4] = exp(%1)\n",
                             all_operators()),
                 Error);
}

TEST(GraphText, MistakesNameTheirLine) {
    auto parse = [](const std::string& text) { return parse_graph(text, all_operators()); };
    EXPECT_ERROR(parse("input %0 \"x\": float32[2]\n%1: float32[2] = nonsense(%0)\n"), "line 2");
    EXPECT_ERROR(parse("input %0 \"x\": float32[2]\n%1: float32[3] = negate(%0)\n"), "line 2");
    EXPECT_ERROR(parse("%0: float32[2] = negate(%7)\n"), "line 1");
    EXPECT_ERROR(parse("input %0 \"x\": float32[-2]\n"), "line 1");
    EXPECT_ERROR(parse("input %0 \"x\": float32[1,1,1,1,1,1,1,1,1]\n"), "at most 8");
    EXPECT_ERROR(parse("stored 0 \"w\": float32[2]\nparameter %0: float32[4] = stored 0 strides [1] offset 0\n"),
                 "no view");
}

TEST(GraphText, DamagedTextIsAnErrorNeverACrash) {
    const std::string text = to_text(example());
    test::Mutator damage(5);
    for (int i = 0; i < 3000; ++i) {
        try {
            parse_graph(damage(text), all_operators());
        } catch (const Error&) {
        }
    }
}

TEST(Passes, DeadNodesGoAndParametersStay) {
    Graph graph(all_operators());
    const ValueId w = graph.add_parameter(graph.add_stored("w", {DType::float32, {3}}));
    graph.add("exp", {w});
    graph.add_output({"y", graph.add("negate", {w}), ValueId::none});
    const Graph result = eliminate_dead_code(graph);
    EXPECT_EQ(result.nodes().size(), 1u);
    EXPECT_EQ(result.parameters().size(), 1u);
}

TEST(Passes, EqualNodesMergeButNotAcrossThePassesNorWhereTheyAreRandom) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("x", {DType::float32, {3}});
    std::vector<ValueId> all = {graph.add("exp", {x}), graph.add("exp", {x}),
                                graph.add("dropout", {x}, {{"p", 0.5}}, "a"),
                                graph.add("dropout", {x}, {{"p", 0.5}}, "b")};
    graph.begin(Phase::backward);
    all.push_back(graph.add("exp", {x}));
    for (ValueId value : all) graph.add_output({"y", value, ValueId::none});
    const Graph result = eliminate_common_subexpressions(graph);
    EXPECT_EQ(count(result, "exp"), 2);     // one per pass
    EXPECT_EQ(count(result, "dropout"), 2); // their draws differ
}

TEST(Passes, LayoutsThatAnOperatorDoesNotTakeAreCopiedOnce) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("x", {DType::float32, {4, 6}});
    const ValueId turned = graph.add("transpose", {x}, {{"permutation", std::vector<std::int64_t>{1, 0}}});
    graph.add_output({"a", graph.add("softmax", {turned}), ValueId::none});
    graph.add_output({"b", graph.add("softmax_gradient", {turned, turned}), ValueId::none});
    graph.add_output({"c", graph.add("exp", {turned}), ValueId::none}); // takes any strides
    const Graph result = materialise(graph);
    EXPECT_EQ(count(result, "contiguous"), 1);
    verify(result);
}

TEST(Passes, WithoutDropoutNothingIsRandom) {
    const Graph result = remove_dropout(eliminate_dead_code(example()));
    EXPECT_EQ(count(result, "dropout"), 0);
    verify(result);
}

} // namespace
} // namespace tutti

// Differentiation: what is added in the graph, and what is left as contributions.
#include "graph/autodiff.h"
#include "graph/verify.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace ops;
namespace {

using List = std::vector<std::int64_t>;

class Autodiff : public ::testing::Test {
  protected:
    ValueId parameter(const std::string& name, Shape shape) {
        return graph.add_parameter(graph.add_stored(name, {DType::float32, shape}));
    }
    // Returns the number of the first backward node.
    std::size_t differentiate_sum(ValueId value) {
        List dims;
        for (int d = 0; d < graph.shape(value).rank(); ++d) dims.push_back(d);
        const ValueId loss = graph.add("reduce_sum", {value}, {{"dims", dims}});
        const ValueId seed =
            graph.add("fill", {}, {{"dtype", std::string("float32")}, {"shape", List{}}, {"value", 1.0}});
        const std::size_t first = graph.nodes().size();
        differentiate(graph, loss, seed);
        verify(graph);
        return first;
    }
    std::ptrdiff_t contributions(ValueId parameter) const {
        return std::ranges::count(graph.outputs(), parameter, &Output::parameter);
    }
    std::ptrdiff_t count(std::string_view op, std::size_t first) const {
        return std::ranges::count_if(graph.nodes().subspan(first), [&](const Node& n) { return n.op->name == op; });
    }

    Graph graph{all_operators()};
    ValueId x = graph.add_input("x", {DType::float32, {2, 3}});
};

TEST_F(Autodiff, EachUseOfATiedParameterIsAContribution) {
    const ValueId w = parameter("w", {3, 3});
    const std::size_t first = differentiate_sum(graph.add("linear", {graph.add("linear", {x, w}), w}));
    EXPECT_EQ(contributions(w), 2);
    EXPECT_EQ(count("add", first), 0);
    for (const Output& output : graph.outputs()) EXPECT_EQ(output.name, "w");
}

TEST_F(Autodiff, TwoViewsOfOneStoredTensorEachHaveTheirOwn) {
    const std::int32_t stored = graph.add_stored("qk", {DType::float32, {6, 3}});
    const ValueId q = graph.add_parameter(stored, {3, 3}, {{3, 1}, 0});
    const ValueId k = graph.add_parameter(stored, {3, 3}, {{3, 1}, 9});
    differentiate_sum(graph.add("multiply", {graph.add("linear", {x, q}), graph.add("linear", {x, k})}));
    EXPECT_EQ(contributions(q), 1);
    EXPECT_EQ(contributions(k), 1);
}

TEST_F(Autodiff, UsesOfAnActivationAreAdded) {
    const ValueId w = parameter("w", {3, 3});
    const ValueId h = graph.add("linear", {x, w});
    const ValueId residual = graph.add("add", {h, graph.add("tanh", {h})});
    const std::size_t first = differentiate_sum(residual);
    EXPECT_EQ(count("add", first), 1);
    EXPECT_EQ(contributions(w), 1);
}

TEST_F(Autodiff, NothingIsComputedForInputsOfTheGraph) {
    const ValueId w = parameter("w", {5, 3});
    const std::size_t first = differentiate_sum(graph.add("linear", {graph.add("tanh", {x}), w}));
    EXPECT_EQ(count("linear_input_gradient", first), 0);
    EXPECT_EQ(count("linear_weight_gradient", first), 1);
}

TEST_F(Autodiff, WhatDoesNotReachTheLossHasNoGradient) {
    const ValueId used = parameter("used", {3}), unused = parameter("unused", {3});
    graph.add("multiply", {x, unused});
    differentiate_sum(graph.add("multiply", {x, used}));
    EXPECT_EQ(contributions(used), 1);
    EXPECT_EQ(contributions(unused), 0);
}

TEST_F(Autodiff, BroadcastingIsSummedBackToTheShapeOfTheInput) {
    const ValueId row = parameter("row", {3}), column = parameter("column", {2, 1}), scalar = parameter("scalar", {});
    differentiate_sum(graph.add("add", {graph.add("multiply", {x, row}), graph.add("multiply", {column, scalar})}));
    for (ValueId parameter : {row, column, scalar})
        for (const Output& output : graph.outputs())
            if (output.parameter == parameter) {
                EXPECT_EQ(graph.shape(output.value), graph.shape(parameter));
            }
    EXPECT_EQ(contributions(row) + contributions(column) + contributions(scalar), 3);
}

TEST_F(Autodiff, BackwardNodesKeepTheSourceOfTheForward) {
    const ValueId w = parameter("w", {3, 3});
    const ValueId h = graph.add("linear", {x, w}, {}, "h.0.mlp");
    const std::size_t first = differentiate_sum(graph.add("dropout", {h}, {{"p", 0.1}}, "h.0.dropout"));
    const auto backward = graph.nodes().subspan(first);
    const auto dropout = std::ranges::find_if(backward, [](const Node& n) { return n.op->name == "dropout"; });
    ASSERT_NE(dropout, backward.end());
    EXPECT_EQ(dropout->source, "h.0.dropout"); // or it would draw another mask
    EXPECT_EQ(count("linear_weight_gradient", first), 1);
}

TEST_F(Autodiff, ALossWithoutParametersIsABug) { EXPECT_THROW(differentiate_sum(graph.add("tanh", {x})), Bug); }

} // namespace
} // namespace tutti

// Which products become one, and which may not.
#include "graph/merge.h"

#include "graph/text.h"
#include "graph/verify.h"
#include "ops/operators.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace ops;
namespace {

class Merge : public testing::Test {
  protected:
    Graph graph{all_operators()};
    ValueId x = graph.add_input("x", {DType::float32, {2, 3, 16}});
    int made = 0;

    ValueId parameter(Shape shape) {
        return graph.add_parameter(graph.add_stored(fmt::format("p{}", made++), {DType::float32, shape}));
    }
    ValueId linear(std::int64_t width, bool bias = false) {
        const ValueId weight = parameter({width, 16});
        if (!bias) return graph.add("linear", {x, weight}, {}, "proj");
        return graph.add("linear", {x, weight, parameter({width})}, {}, "proj");
    }
    void use(ValueId value) { graph.add_output({"y", graph.add("relu", {value}), ValueId::none}); }

    Graph merged() {
        ValueId followed = x;
        Graph result = merge_linears(graph, followed);
        verify(result);
        EXPECT_EQ(result.value(followed).name, "x");
        EXPECT_EQ(to_text(parse_graph(to_text(result), all_operators())), to_text(result));
        return result;
    }
    std::int64_t linears() {
        return std::ranges::count_if(merged().nodes(), [](const Node& node) { return node.op->name == "linear"; });
    }
};

TEST_F(Merge, ProductsOfOneInputAreOneProductByARunOfTheirWeights) {
    for (std::int64_t width : {64, 128, 64}) use(linear(width, true));
    const Graph result = merged();
    const Node &product = result.nodes()[0], &split = result.nodes()[1];
    EXPECT_EQ(split.op->name, "split");
    EXPECT_EQ(split.attributes.integers("sizes"), (std::vector<std::int64_t>{64, 128, 64}));
    ASSERT_EQ(result.parameters().size(), 2u);
    const Parameter *weight = result.parameter_of(product.inputs[1]), *bias = result.parameter_of(product.inputs[2]);
    EXPECT_EQ(result.shape(weight->value), (Shape{256, 16}));
    EXPECT_EQ(weight->run(), (std::vector<std::int32_t>{0, 2, 4}));
    EXPECT_EQ(result.shape(bias->value), (Shape{256}));
    EXPECT_EQ(bias->run(), (std::vector<std::int32_t>{1, 3, 5}));
}

TEST_F(Merge, ThoseWithABiasAndThoseWithoutStayApart) {
    for (bool bias : {false, true, false, true}) use(linear(64, bias));
    EXPECT_EQ(linears(), 2);
}

TEST_F(Merge, ProductsOfOtherInputsStay) {
    use(linear(64));
    use(graph.add("linear", {graph.add("relu", {x}), parameter({64, 16})}));
    EXPECT_EQ(linears(), 2);
}

TEST_F(Merge, TensorsThatWouldLeaveGapsStay) {
    use(linear(64));
    use(linear(9));        // 144 elements
    use(linear(64, true)); // alone with its bias
    use(linear(32, true)); // 32 elements of bias
    EXPECT_EQ(linears(), 4);
}

TEST_F(Merge, TiedWeightsStay) {
    const ValueId tied = parameter({64, 16});
    use(graph.add("linear", {x, tied}));
    use(graph.add("linear", {graph.add("relu", {x}), tied}));
    use(linear(64));
    EXPECT_EQ(linears(), 3);
}

TEST_F(Merge, PiecesOfStoredTensorsStay) {
    const std::int32_t stored = graph.add_stored("turned", {DType::float32, {16, 64}});
    use(graph.add("linear", {x, graph.add_parameter(stored, {64, 16}, {{1, 64}, 0})}));
    const std::int32_t fused = graph.add_stored("fused", {DType::float32, {128, 16}});
    for (std::int64_t half : {0, 1})
        use(graph.add("linear", {x, graph.add_parameter(fused, {64, 16}, {{16, 1}, half * 1024})}));
    EXPECT_EQ(linears(), 3);
}

TEST_F(Merge, ResultsThatTheCallerWantsStay) {
    use(linear(64));
    use(linear(64));
    graph.add_output({"logits", linear(64), ValueId::none});
    EXPECT_EQ(linears(), 2);
}

TEST_F(Merge, TheVerifierSeesRunsThatCannotBe) {
    const std::int32_t a = graph.add_stored("a", {DType::float32, {4, 16}});
    const std::int32_t b = graph.add_stored("b", {DType::float32, {4, 16}});
    const std::int32_t odd = graph.add_stored("odd", {DType::float32, {1, 16}});
    auto with = [&](std::int32_t first, std::int64_t rows, std::vector<std::int32_t> further) {
        Graph other = graph;
        other.add_parameter(first, {rows, 16}, dense_layout({rows, 16}), std::move(further));
        return other;
    };
    EXPECT_NO_THROW(verify(with(a, 8, {b})));
    EXPECT_ERROR(verify(with(a, 9, {b})), "no view");
    EXPECT_ERROR(verify(with(a, 5, {odd})), "no multiple of 64");
    EXPECT_ERROR(verify(with(a, 8, {a})), "another parameter");
    graph.add_parameter(b);
    EXPECT_ERROR(verify(with(a, 8, {b})), "another parameter");
}

} // namespace
} // namespace tutti

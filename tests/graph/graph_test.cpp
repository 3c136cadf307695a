// Graphs: views are strides and offsets into their storage; what strides cannot express is copied first.
#include "graph/graph.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace ops;
namespace {

using List = std::vector<std::int64_t>;

class GraphTest : public ::testing::Test {
  protected:
    ValueId input(Shape shape) { return graph.add_input("x", {DType::float32, shape}); }
    const Layout& layout(ValueId id) const { return graph.value(id).layout; }

    Graph graph{all_operators()};
};

TEST_F(GraphTest, ReshapeOfADenseValueIsAView) {
    const ValueId x = input({2, 3, 8});
    const ValueId y = graph.add("reshape", {x}, {{"shape", List{6, 2, 4}}});
    EXPECT_EQ(graph.value(y).storage, x);
    EXPECT_EQ(layout(y), (Layout{{8, 4, 1}, 0}));
    EXPECT_EQ(graph.nodes().size(), 1u);
}

TEST_F(GraphTest, ReshapeOfATransposedValueInsertsACopyWhereStridesCannotSayIt) {
    const ValueId x = input({2, 3, 4, 5});
    const ValueId heads = graph.add("transpose", {x}, {{"permutation", List{0, 2, 1, 3}}}); // [2,4,3,5]
    EXPECT_EQ(layout(heads), (Layout{{60, 5, 20, 1}, 0}));
    const ValueId joined = graph.add("reshape", {heads}, {{"shape", List{2, 4, 15}}});
    ASSERT_EQ(graph.nodes().size(), 3u);
    EXPECT_EQ(graph.nodes()[1].op->name, "contiguous");
    EXPECT_EQ(graph.value(joined).storage, graph.nodes()[1].outputs[0]);
    EXPECT_EQ(layout(joined), dense_layout({2, 4, 15}));
}

TEST_F(GraphTest, ReshapeOfATransposedValueStaysAViewWhereItOnlySplits) {
    const ValueId x = input({2, 3, 20});
    const ValueId turned = graph.add("transpose", {x}, {{"permutation", List{1, 0, 2}}});
    const ValueId split = graph.add("reshape", {turned}, {{"shape", List{3, 2, 4, 5}}});
    EXPECT_EQ(graph.value(split).storage, x);
    EXPECT_EQ(layout(split), (Layout{{20, 60, 5, 1}, 0}));
    const ValueId with_ones = graph.add("reshape", {turned}, {{"shape", List{3, 1, 2, 20, 1}}});
    EXPECT_EQ(graph.value(with_ones).storage, x);
    EXPECT_EQ(graph.nodes().size(), 3u);
}

TEST_F(GraphTest, SlicesAndSplitsAreOffsets) {
    const ValueId x = input({4, 12});
    const ValueId rows =
        graph.add("slice", {x}, {{"dim", std::int64_t{0}}, {"start", std::int64_t{1}}, {"size", std::int64_t{2}}});
    EXPECT_EQ(layout(rows), (Layout{{12, 1}, 12}));
    const NodeId split = graph.add_node("split", {rows}, {{"dim", std::int64_t{-1}}, {"sizes", List{6, 2, 4}}});
    const auto& parts = graph.node(split).outputs;
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(graph.shape(parts[1]), (Shape{2, 2}));
    EXPECT_EQ(layout(parts[0]), (Layout{{12, 1}, 12}));
    EXPECT_EQ(layout(parts[1]), (Layout{{12, 1}, 18}));
    EXPECT_EQ(layout(parts[2]), (Layout{{12, 1}, 20}));
    for (ValueId part : parts) EXPECT_EQ(graph.value(part).storage, x);
}

TEST_F(GraphTest, ExpandedDimensionsHaveStrideZero) {
    const ValueId x = input({3, 1});
    const ValueId y = graph.add("expand", {x}, {{"shape", List{2, 3, 5}}});
    EXPECT_EQ(layout(y), (Layout{{0, 1, 0}, 0}));
    EXPECT_EQ(graph.value(y).storage, x);
}

TEST_F(GraphTest, ParametersAreViewsOfStoredTensors) {
    const std::int32_t stored = graph.add_stored("c_attn.weight", {DType::float32, {4, 9}});
    const ValueId q = graph.add_parameter(stored, {3, 4}, {{1, 9}, 0});
    const ValueId k = graph.add_parameter(stored, {3, 4}, {{1, 9}, 3});
    EXPECT_EQ(graph.value(q).name, "c_attn.weight");
    EXPECT_EQ(graph.parameter_of(k)->stored, stored);
    EXPECT_EQ(graph.parameter_of(input({1})), nullptr);
    EXPECT_TRUE(is_matrix(graph.shape(k), layout(k).strides));
}

TEST_F(GraphTest, WrongInputsAreToldWithTheOperatorAndTheTypes) {
    const ValueId x = input({2, 3}), y = input({2, 4});
    try {
        graph.add("add", {x, y});
        FAIL();
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("[add]"), std::string::npos) << text;
        EXPECT_NE(text.find("float32[2,3]"), std::string::npos) << text;
        EXPECT_NE(text.find("float32[2,4]"), std::string::npos) << text;
    }
    EXPECT_THROW(graph.add("no_such_operator", {x}), Error);
}

} // namespace
} // namespace tutti

// What fusion finds, and what it has to leave alone.
#include "graph/fuse.h"

#include "count.h"
#include "graph/autodiff.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace ops;
namespace {

const TensorType rows{DType::float32, {2, 3, 8}};
const Attributes eps = {{"eps", 1e-5}};

class Fuse : public testing::Test {
  protected:
    Graph graph{all_operators()};

    ValueId input(const TensorType& type = rows) { return graph.add_input("x", type); }
    ValueId parameter(Shape shape) { return graph.add_parameter(graph.add_stored("p", {DType::float32, shape})); }
    void output(ValueId value) { graph.add_output({"y", value, ValueId::none}); }
    // The sum of all elements as the loss, and its gradients.
    void differentiate_sum_of(ValueId y) {
        const ValueId loss = graph.add("reduce_sum", {y}, {{"dims", std::vector<std::int64_t>{0, 1, 2}}});
        graph.add_output({"loss", loss, ValueId::none});
        graph.begin(Phase::backward);
        const Attributes one = {
            {"dtype", std::string("float32")}, {"shape", std::vector<std::int64_t>{}}, {"value", 1.0}};
        differentiate(graph, loss, graph.add("fill", {}, one));
    }
};

TEST_F(Fuse, ASumAndItsNormAreOneAndOthersReadTheSumOfIt) {
    const ValueId sum = graph.add("add", {input(), input()});
    const ValueId y = graph.add("rms_norm", {sum, parameter({8})}, eps);
    output(graph.add("add", {sum, y}));
    const Graph fused = fuse_added_norms(graph);
    ASSERT_EQ(count(fused, "add_rms_norm"), 1);
    EXPECT_EQ(count(fused, "rms_norm"), 0);
    const Node& norm = fused.nodes()[0];
    EXPECT_EQ(fused.nodes()[1].inputs, (std::vector{norm.outputs[0], norm.outputs[1]}));
}

TEST_F(Fuse, OfTwoNormsOfOneSumTheFirstTakesIt) {
    const ValueId sum = graph.add("add", {input(), input()});
    for (int i = 0; i < 2; ++i) output(graph.add("layer_norm", {sum, parameter({8}), parameter({8})}, eps));
    const Graph fused = fuse_added_norms(graph);
    EXPECT_EQ(count(fused, "add_layer_norm"), 1);
    EXPECT_EQ(count(fused, "layer_norm"), 1);
}

TEST_F(Fuse, ABroadcastSumStaysByItself) {
    const ValueId sum = graph.add("add", {input(), input({DType::float32, {8}})});
    output(graph.add("rms_norm", {sum, parameter({8})}, eps));
    EXPECT_EQ(count(fuse_added_norms(graph), "add_rms_norm"), 0);
}

TEST_F(Fuse, AnActivationThatSomethingElseReadsStays) {
    const ValueId x = input(), activated = graph.add("silu", {graph.add("linear", {x, parameter({8, 8})})});
    const ValueId y = graph.add("multiply", {activated, graph.add("linear", {x, parameter({8, 8})})});
    differentiate_sum_of(y);
    EXPECT_EQ(count(fuse_gated(graph), "gated"), 1);
    EXPECT_EQ(count(fuse_gated(graph), "gated_gradient"), 1);
    EXPECT_EQ(count(fuse_gated(graph), "multiply"), 0);
    output(activated);
    EXPECT_EQ(count(fuse_gated(graph), "gated"), 0);
}

TEST_F(Fuse, AnActivationOfBothOperandsIsNoGate) {
    const ValueId activated = graph.add("relu", {graph.add("linear", {input(), parameter({8, 8})})});
    differentiate_sum_of(graph.add("multiply", {activated, activated}));
    EXPECT_EQ(count(fuse_gated(graph), "gated"), 0);
}

TEST_F(Fuse, SumsOfProductsBecomeAChain) {
    const ValueId x = graph.add("linear", {input(), parameter({8, 8})});
    ValueId y = graph.add("linear", {x, parameter({8, 8})});
    for (int i = 0; i < 2; ++i) y = graph.add("add", {y, graph.add("linear", {x, parameter({8, 8})})});
    differentiate_sum_of(y);
    const Graph fused = fuse_matmul_sums(graph);
    EXPECT_EQ(count(graph, "add") - count(fused, "add"), 2);
    int added = 0;
    for (const Node& node : fused.nodes()) added += node.op->name == "linear_input_gradient" && node.inputs.size() == 3;
    EXPECT_EQ(added, 2);
}

TEST_F(Fuse, AHeadWhoseLogitsAreReadElsewhereStays) {
    const ValueId x = graph.add("linear", {input(), parameter({8, 8})});
    const ValueId logits = graph.add("linear", {x, parameter({17, 8})});
    const ValueId targets = graph.add_input("targets", {DType::int64, {2, 3}});
    const ValueId loss = graph.add("cross_entropy", {logits, targets}, {{"ignore_index", std::int64_t{-100}}});
    graph.add_output({"loss", loss, ValueId::none});
    graph.add_output({"logits", logits, ValueId::none});
    Graph other = graph;
    for (Graph* one : {&graph, &other}) {
        if (one == &other) one->add_output({"most", one->add("negate", {logits}), ValueId::none});
        one->begin(Phase::backward);
        differentiate(
            *one, loss,
            one->add("step_scalar", {}, {{"field", std::string("loss_seed")}, {"dtype", std::string("float32")}}));
    }
    const Graph fused = fuse_head(graph, Bytes{1 << 20});
    EXPECT_EQ(count(fused, "linear_cross_entropy_gradient"), 1);
    EXPECT_EQ(count(fused, "linear"), 1);
    EXPECT_EQ(fused.output("logits"), nullptr);
    EXPECT_NE(fused.output("loss"), nullptr);
    EXPECT_EQ(count(fuse_head(other, Bytes{1 << 20}), "linear_cross_entropy_gradient"), 0);
}

} // namespace
} // namespace tutti

// Graph: a computation on one device in static single assignment, nodes in topological order.
//
// Values are numbers into `values`, nodes into `nodes`. A value is a graph input, a parameter, or a node's output.
// Views (reshape, transpose, slice, split, expand) share the storage of the value they look at.
#pragma once

#include "base/tensor_type.h"
#include "graph/operator.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class ValueId : std::int32_t { none = -1 };
enum class NodeId : std::int32_t { none = -1 };

inline std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
inline std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

struct Value {
    TensorType type;
    Layout layout;                   // within the storage
    ValueId storage = ValueId::none; // the value whose memory this one uses; itself unless it is a view
    NodeId producer = NodeId::none;  // none for inputs and parameters
    std::string name;                // of inputs and parameters; empty for others
};

// The passes over a stage's nodes, in the order they run. Recomputation makes again what the forward did not keep.
enum class Phase : std::uint8_t { forward, recompute, backward };

struct Node {
    const Operator* op = nullptr;
    Attributes attributes;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::string source; // stable name of the place in the model: keys random numbers, shown in reports
    Phase phase = Phase::forward;
    std::int32_t block =
        -1; // of the model (graph/blocks.h) that it belongs to, or whose gradient it computes; -1: unknown
};

// A parameter is a view of a stored tensor: reshape, permute and slice are all strides and an offset. Its value's
// layout says which. It may also be a view of a run of stored tensors, laid out one right behind the other; these then
// belong to no other parameter.
struct Parameter {
    ValueId value = ValueId::none;
    std::int32_t stored = -1;               // the first of a run, or the only one
    std::vector<std::int32_t> further = {}; // those behind it

    std::vector<std::int32_t> run() const {
        std::vector<std::int32_t> all = {stored};
        all.insert(all.end(), further.begin(), further.end());
        return all;
    }
};

// Stored tensors of a run have a multiple of this many elements, so that each may begin where the one before ends.
constexpr std::int64_t run_alignment = 64;

// What a graph returns. A gradient contribution names the parameter it belongs to; several contributions to one
// parameter (ties, views of one stored tensor) are accumulated, never added in the graph.
struct Output {
    std::string name;
    ValueId value = ValueId::none;
    ValueId parameter = ValueId::none;
};

class Graph {
  public:
    explicit Graph(const OperatorSet& operators) : operators_(&operators) {}

    ValueId add_input(std::string name, TensorType type);
    std::int32_t add_stored(std::string name, TensorType type);
    // The whole stored tensor, or a view of it, or of a run that begins with it.
    ValueId add_parameter(std::int32_t stored);
    ValueId add_parameter(std::int32_t stored, Shape shape, Layout layout, std::vector<std::int32_t> further = {});
    void add_output(Output output) { outputs_.push_back(std::move(output)); }
    // Nodes that follow belong to this phase. There is no way back: nodes stand in the order of their phases.
    void begin(Phase phase) { phase_ = phase; }
    // Nodes that follow belong to this block.
    void set_block(std::int32_t block) { block_ = block; }

    // Appends a node; its outputs' types are inferred. Inputs of views that cannot be expressed are copied first.
    NodeId add_node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {},
                    std::string source = {});
    // The same, for nodes with one output that matters: the first.
    ValueId add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {}, std::string source = {}) {
        return node(add_node(op, std::move(inputs), std::move(attributes), std::move(source))).outputs.front();
    }

    const Value& value(ValueId id) const { return values_[index(id)]; }
    const Node& node(NodeId id) const { return nodes_[index(id)]; }
    const TensorType& type(ValueId id) const { return value(id).type; }
    const Shape& shape(ValueId id) const { return value(id).type.shape; }

    std::span<const Value> values() const { return values_; }
    std::span<const Node> nodes() const { return nodes_; }
    std::span<const ValueId> inputs() const { return inputs_; }
    std::span<const StoredTensor> stored() const { return stored_; }
    std::int64_t stored_elements() const; // of all of them
    std::span<const Parameter> parameters() const { return parameters_; }
    std::span<const Output> outputs() const { return outputs_; }
    const OperatorSet& operators() const { return *operators_; }

    const Parameter* parameter_of(ValueId value) const;
    const Output* output(std::string_view name) const;
    std::vector<TensorType> input_types(const Node& node) const;
    std::vector<TensorType> output_types(const Node& node) const;

  private:
    ValueId add_value(Value value);

    const OperatorSet* operators_;
    Phase phase_ = Phase::forward;
    std::int32_t block_ = -1;
    std::vector<Value> values_;
    std::vector<Node> nodes_;
    std::vector<ValueId> inputs_;
    std::vector<StoredTensor> stored_;
    std::vector<Parameter> parameters_;
    std::vector<Output> outputs_;
};

// Total cost of the nodes [first, last).
Cost cost_of(const Graph& graph, std::size_t first, std::size_t last);

} // namespace tutti

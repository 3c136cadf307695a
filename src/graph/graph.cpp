#include "graph/graph.h"

#include "base/checked.h"
#include "base/error.h"

#include <algorithm>

namespace tutti {

ValueId Graph::add_value(Value value) {
    const auto id = static_cast<ValueId>(narrow<std::int32_t>(values_.size()));
    if (value.storage == ValueId::none) value.storage = id;
    values_.push_back(std::move(value));
    return id;
}

ValueId Graph::add_input(std::string name, TensorType type) {
    const Layout layout = dense_layout(type.shape);
    inputs_.push_back(add_value({type, layout, ValueId::none, NodeId::none, std::move(name)}));
    return inputs_.back();
}

std::int32_t Graph::add_stored(std::string name, TensorType type) {
    stored_.push_back({std::move(name), type});
    return narrow<std::int32_t>(stored_.size() - 1);
}

ValueId Graph::add_parameter(std::int32_t stored) {
    const Shape& shape = stored_[static_cast<std::size_t>(stored)].type.shape;
    return add_parameter(stored, shape, dense_layout(shape));
}

ValueId Graph::add_parameter(std::int32_t stored, Shape shape, Layout layout, std::vector<std::int32_t> further) {
    const StoredTensor& tensor = stored_[static_cast<std::size_t>(stored)];
    std::string name = tensor.name;
    for (std::int32_t next : further) name += " + " + stored_[static_cast<std::size_t>(next)].name;
    const ValueId id =
        add_value({{tensor.type.dtype, shape}, std::move(layout), ValueId::none, NodeId::none, std::move(name)});
    parameters_.push_back({id, stored, std::move(further)});
    return id;
}

NodeId Graph::add_node(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, std::string source) {
    const Operator& definition = operators_->at(op);
    for (ValueId input : inputs)
        TUTTI_CHECK(index(input) < values_.size(), "operator {} reads value {} of {}", op, index(input),
                    values_.size());

    std::vector<TensorType> input_types;
    for (ValueId input : inputs) input_types.push_back(type(input));
    const std::vector<TensorType> types = definition.infer(input_types, attributes);

    std::optional<std::vector<Layout>> layouts;
    if (definition.view) {
        layouts = definition.view(type(inputs[0]), value(inputs[0]).layout, attributes);
        if (!layouts) {
            inputs[0] = add("contiguous", {inputs[0]}, {}, source);
            layouts = definition.view(type(inputs[0]), value(inputs[0]).layout, attributes);
            TUTTI_CHECK(layouts.has_value(), "{} is no view of a dense tensor", op);
        }
    }

    Node node{&definition, std::move(attributes), std::move(inputs), {}, std::move(source), phase_, block_};
    const auto id = static_cast<NodeId>(narrow<std::int32_t>(nodes_.size()));
    for (std::size_t i = 0; i < types.size(); ++i) {
        Value output{types[i], dense_layout(types[i].shape), ValueId::none, id, {}};
        if (layouts) {
            output.layout = (*layouts)[i];
            output.storage = value(node.inputs[0]).storage;
        }
        node.outputs.push_back(add_value(std::move(output)));
    }
    nodes_.push_back(std::move(node));
    return id;
}

const Parameter* Graph::parameter_of(ValueId value) const {
    const auto at = std::ranges::lower_bound(parameters_, value, {}, &Parameter::value); // added in order of values
    return at == parameters_.end() || at->value != value ? nullptr : &*at;
}

const Output* Graph::output(std::string_view name) const {
    const auto at = std::ranges::find(outputs_, name, &Output::name);
    return at == outputs_.end() ? nullptr : &*at;
}

std::vector<TensorType> Graph::input_types(const Node& node) const {
    std::vector<TensorType> types;
    for (ValueId input : node.inputs) types.push_back(type(input));
    return types;
}

std::vector<TensorType> Graph::output_types(const Node& node) const {
    std::vector<TensorType> types;
    for (ValueId output : node.outputs) types.push_back(type(output));
    return types;
}

Cost cost_of(const Graph& graph, std::size_t first, std::size_t last) {
    Cost total;
    for (const Node& node : graph.nodes().subspan(first, last - first)) {
        const Cost cost = node.op->cost(graph.input_types(node), graph.output_types(node), node.attributes);
        total.flops += cost.flops;
        total.bytes += cost.bytes;
    }
    return total;
}

std::int64_t Graph::stored_elements() const {
    std::int64_t elements = 0;
    for (const StoredTensor& tensor : stored_) elements += tensor.type.elements();
    return elements;
}

} // namespace tutti

// Rewriter: what passes have in common. Rebuilds a graph node by node, renaming values as it goes.
#pragma once

#include "graph/graph.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class Rewriter {
  public:
    // `without`: parameters that are no more.
    explicit Rewriter(const Graph& from, std::span<const ValueId> without = {}) : from_(from), to_(from.operators()) {
        renamed_.assign(from.values().size(), ValueId::none);
        left_out_.assign(from.values().size(), false);
        for (const StoredTensor& stored : from.stored()) to_.add_stored(stored.name, stored.type);
        for (ValueId input : from.inputs())
            renamed_[index(input)] = to_.add_input(from.value(input).name, from.type(input));
        for (const Parameter& parameter : from.parameters())
            if (std::ranges::find(without, parameter.value) == without.end())
                renamed_[index(parameter.value)] =
                    to_.add_parameter(parameter.stored, from.shape(parameter.value), from.value(parameter.value).layout,
                                      parameter.further);
    }

    Graph& graph() { return to_; }
    ValueId renamed(ValueId old) const { return renamed_[index(old)]; }
    void rename(ValueId old, ValueId now) { renamed_[index(old)] = now; }

    std::vector<ValueId> renamed(const std::vector<ValueId>& old) const {
        std::vector<ValueId> now;
        for (ValueId value : old) now.push_back(renamed(value));
        return now;
    }
    void leave_out(ValueId old) { left_out_[index(old)] = true; }
    // Nodes that follow belong where this one does.
    void enter(const Node& node) {
        to_.begin(node.phase);
        to_.set_block(node.block);
    }
    void copy(const Node& node, std::vector<ValueId> inputs) { copy(node, std::move(inputs), node.attributes); }
    void copy(const Node& node, std::vector<ValueId> inputs, Attributes attributes) {
        add(node.op->name, std::move(inputs), std::move(attributes), node.source, node.outputs);
    }
    // Adds a node whose outputs take the place of `old` ones, none where nobody wants one.
    void add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, const std::string& source,
             const std::vector<ValueId>& old) {
        const NodeId id = to_.add_node(op, std::move(inputs), std::move(attributes), source);
        for (std::size_t i = 0; i < old.size(); ++i)
            if (old[i] != ValueId::none) rename(old[i], to_.node(id).outputs[i]);
    }
    // Without the outputs that a pass has left out.
    Graph finish() {
        for (const Output& output : from_.outputs())
            if (!left_out_[index(output.value)])
                to_.add_output({output.name, renamed(output.value),
                                output.parameter == ValueId::none ? ValueId::none : renamed(output.parameter)});
        return std::move(to_);
    }

  private:
    const Graph& from_;
    Graph to_;
    std::vector<ValueId> renamed_;
    std::vector<bool> left_out_;
};

} // namespace tutti

#include "compile/joins.h"

#include <algorithm>
#include <optional>

namespace tutti::compile {
namespace {

class Joiner {
  public:
    Joiner(const Graph& graph, const std::vector<Part>& parts)
        : graph_(graph), parts_(parts), uses_(graph.values().size(), 0), readers_(graph.values().size()) {
        for (std::size_t i = 0; i < graph.nodes().size(); ++i)
            for (ValueId input : graph.nodes()[i].inputs) {
                ++uses_[index(input)];
                readers_[index(input)].push_back(i);
            }
        for (const Output& output : graph.outputs()) ++uses_[index(output.value)];
        result_.joined.assign(graph.nodes().size(), false);
    }

    Joins run() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (const auto& pieces = graph_.nodes()[i].op->pieces; pieces && pieces->cover && !pieces->takes_apart)
                join(i);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (!graph_.nodes()[i].op->view && graph_.nodes()[i].op->overwrites >= 0) rewrite(i);
        return std::move(result_);
    }

  private:
    struct Origin {
        ValueId value;
        Layout layout;
    };

    // All parts or none.
    void join(std::size_t i) {
        const Node& node = graph_.nodes()[i];
        const ValueId whole = node.outputs[0];
        Layout layout = dense_layout(graph_.shape(whole));
        const std::int64_t given = node.attributes.integer("dim");
        const int dim = static_cast<int>(given < 0 ? given + graph_.shape(whole).rank() : given);
        std::vector<Origin> origins;
        for (ValueId input : node.inputs) {
            const auto origin = origin_of(input, layout, parts_[i]);
            if (!origin) return;
            origins.push_back(*origin);
            layout.offset += layout.strides[dim] * graph_.shape(input)[dim];
        }
        result_.joined[i] = true;
        for (const Origin& origin : origins) result_.inside[origin.value] = {whole, origin.layout};
    }

    // What a kernel has to write, and how, so that `value` has this layout.
    std::optional<Origin> origin_of(ValueId value, Layout layout, Part part) const {
        for (;;) {
            const NodeId producer = graph_.value(value).producer;
            if (producer == NodeId::none || uses_[index(value)] != 1) return std::nullopt;
            const Node& maker = graph_.node(producer);
            if (!maker.op->view) {
                const auto output = std::ranges::find(maker.outputs, value) - maker.outputs.begin();
                const bool fits = parts_[index(producer)] == part &&
                                  !maker.op->accumulates(static_cast<std::size_t>(output)) &&
                                  accepted(maker.op->writes, graph_.shape(value), layout.strides);
                return fits ? std::optional(Origin{value, layout}) : std::nullopt;
            }
            if (!maker.op->view_back) return std::nullopt;
            const auto before =
                maker.op->view_back(graph_.shape(maker.inputs[0]), graph_.type(value), layout, maker.attributes);
            if (!before) return std::nullopt;
            value = maker.inputs[0];
            layout = *before;
        }
    }

    void rewrite(std::size_t i) {
        const Node& node = graph_.nodes()[i];
        if (node.op->overwrites >= static_cast<int>(node.inputs.size())) return;
        const ValueId part = node.inputs[static_cast<std::size_t>(node.op->overwrites)], result = node.outputs[0];
        const Value& value = graph_.value(part);
        const NodeId maker = graph_.value(value.storage).producer;
        if (maker == NodeId::none || graph_.node(maker).op->view || parts_[index(maker)] != parts_[i] ||
            result_.joined[index(maker)] || result_.inside.contains(value.storage) || result_.inside.contains(result))
            return;
        const auto sharing = std::ranges::count_if(
            node.inputs, [&](ValueId input) { return graph_.value(input).storage == value.storage; });
        if (sharing != 1 || value.type != graph_.type(result) || !is_only_reader(part) ||
            !accepted(node.op->writes, value.type.shape, value.layout.strides))
            return;
        const auto& readers = readers_[index(result)];
        const bool fits = std::ranges::all_of(readers, [&](std::size_t reader) {
            const Operator& op = *graph_.nodes()[reader].op;
            return !op.view && accepted(op.accepts, value.type.shape, value.layout.strides);
        });
        if (!fits || uses_[index(result)] != static_cast<int>(readers.size())) return;
        result_.inside[result] = {value.storage, value.layout};
    }

    // Whether nothing but one node reads the elements of a part of a split.
    bool is_only_reader(ValueId part) const {
        for (;;) {
            const Node& maker = graph_.node(graph_.value(part).producer);
            if (uses_[index(part)] != 1 || !maker.op->view) return false;
            part = maker.inputs[0];
            if (const auto& pieces = maker.op->pieces; pieces && pieces->cover)
                return uses_[index(part)] == 1 && graph_.value(part).storage == part;
            if (!maker.op->view_back) return false;
        }
    }

    const Graph& graph_;
    const std::vector<Part>& parts_;
    std::vector<int> uses_;                         // by nodes, and as results of the graph
    std::vector<std::vector<std::size_t>> readers_; // per value, nodes
    Joins result_;
};

} // namespace

Joins find_joins(const Graph& graph, const std::vector<Part>& parts) { return Joiner(graph, parts).run(); }

} // namespace tutti::compile

#include "compile/joins.h"

#include <algorithm>
#include <optional>

namespace tutti {
namespace {

class Joiner {
  public:
    Joiner(const Graph& graph, const std::vector<Part>& parts)
        : graph_(graph), parts_(parts), uses_(graph.values().size(), 0) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) ++uses_[index(input)];
        for (const Output& output : graph.outputs()) ++uses_[index(output.value)];
        result_.joined.assign(graph.nodes().size(), false);
    }

    Joins run() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (graph_.nodes()[i].op->name == "concat") join(i);
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
            const auto before = before_view(maker, graph_.type(value), layout);
            if (!before) return std::nullopt;
            value = maker.inputs[0];
            layout = *before;
        }
    }

    // The layout of a view's input, given that of its result.
    std::optional<Layout> before_view(const Node& view, const TensorType& type, const Layout& layout) const {
        if (view.op->name == "reshape") { // the way back is a reshape
            const Shape& shape = graph_.shape(view.inputs[0]);
            const auto back =
                view.op->view(type, layout, {{"shape", std::vector<std::int64_t>(shape.begin(), shape.end())}});
            return back ? std::optional(back->front()) : std::nullopt;
        }
        if (view.op->name == "transpose") {
            Layout back = layout;
            const auto& permutation = view.attributes.integers("permutation");
            for (std::size_t d = 0; d < permutation.size(); ++d)
                back.strides[static_cast<int>(permutation[d])] = layout.strides[static_cast<int>(d)];
            return back;
        }
        return std::nullopt;
    }

    const Graph& graph_;
    const std::vector<Part>& parts_;
    std::vector<int> uses_;
    Joins result_;
};

} // namespace

Joins find_joins(const Graph& graph, const std::vector<Part>& parts) { return Joiner(graph, parts).run(); }

} // namespace tutti

#include "graph/verify.h"

#include "base/error.h"

#include <algorithm>

namespace tutti {
namespace {

// The last element a view can reach.
std::int64_t reach(const Shape& shape, const Layout& layout) {
    std::int64_t last = layout.offset;
    for (int d = 0; d < shape.rank(); ++d) last += (shape[d] - 1) * layout.strides[d];
    return last;
}

void verify_sizes(const std::string& what, const TensorType& type) {
    for (std::int64_t size : type.shape)
        if (size <= 0) fail("{} has a dimension of size {}", what, size);
}

void verify_parameters(const Graph& graph) {
    std::vector<int> parameters(graph.stored().size(), 0), runs = parameters; // that each stored tensor is in
    for (const Parameter& parameter : graph.parameters()) {
        const Value& value = graph.value(parameter.value);
        verify_sizes(value.name, value.type);
        std::int64_t elements = 0;
        std::string types;
        bool same_type = true;
        for (std::int32_t number : parameter.run()) {
            if (number < 0 || static_cast<std::size_t>(number) >= graph.stored().size())
                fail("a parameter refers to stored tensor {} of {}", number, graph.stored().size());
            const StoredTensor& stored = graph.stored()[static_cast<std::size_t>(number)];
            verify_sizes(stored.name, stored.type);
            elements += stored.type.elements();
            types += (types.empty() ? "" : " and ") + to_string(stored.type);
            same_type = same_type && value.type.dtype == stored.type.dtype;
            ++parameters[static_cast<std::size_t>(number)];
            runs[static_cast<std::size_t>(number)] += !parameter.further.empty();
            if (!parameter.further.empty() && stored.type.elements() % run_alignment != 0)
                fail("{} is in a run, but {} elements are no multiple of {}", stored.name, stored.type.elements(),
                     run_alignment);
        }
        const bool inside = value.layout.offset >= 0 &&
                            std::ranges::all_of(value.layout.strides, [](auto s) { return s >= 0; }) &&
                            reach(value.type.shape, value.layout) < elements;
        if (!inside || !same_type)
            fail("parameter {} is no view of its stored tensor {}", to_string(value.type), types);
    }
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (runs[i] > 0 && parameters[i] > 1) fail("{} is in a run and in another parameter", graph.stored()[i].name);
}

} // namespace

void verify(const Graph& graph) {
    std::vector<bool> defined(graph.values().size(), false);
    for (ValueId input : graph.inputs()) defined[index(input)] = true;
    for (const Parameter& parameter : graph.parameters()) defined[index(parameter.value)] = true;
    verify_parameters(graph);

    Phase phase = Phase::forward;
    std::size_t number = 0;
    for (const Node& node : graph.nodes()) {
        const std::string where = fmt::format("node {} ({} at {})", number++, node.op->name, node.source);
        for (ValueId input : node.inputs)
            if (index(input) >= defined.size() || !defined[index(input)])
                fail("{} reads value %{} before it is defined", where, index(input));
        if (node.phase < phase) fail("{} follows a node of a later phase", where);
        phase = node.phase;
        if (graph.output_types(node) != node.op->infer(graph.input_types(node), node.attributes))
            fail("{} has outputs of other types than its operator infers", where);
        for (ValueId output : node.outputs) {
            if (defined[index(output)]) fail("{} defines value %{} a second time", where, index(output));
            defined[index(output)] = true;
            const Value& value = graph.value(output);
            verify_sizes(where, value.type);
            const Value& storage = graph.value(value.storage);
            if (graph.parameter_of(value.storage) == nullptr &&
                reach(value.type.shape, value.layout) >= std::max<std::int64_t>(storage.type.elements(), 1))
                fail("{} is a view outside its storage", where);
        }
    }
    for (const Output& output : graph.outputs()) {
        if (!defined[index(output.value)]) fail("output {} is not defined", output.name);
        if (output.parameter != ValueId::none && graph.shape(output.parameter) != graph.shape(output.value))
            fail("the gradient of {} has shape {}, not {}", output.name, to_string(graph.shape(output.value)),
                 to_string(graph.shape(output.parameter)));
    }
}

} // namespace tutti

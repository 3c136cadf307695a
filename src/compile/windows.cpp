#include "compile/windows.h"

#include <algorithm>

namespace tutti::compile {
namespace {

void extend(std::vector<Window>& windows, std::int32_t chunk, std::int32_t position) {
    auto at = std::ranges::find(windows, chunk, &Window::chunk);
    if (at == windows.end()) at = windows.insert(at, {chunk, position, position});
    at->first = std::min(at->first, position);
    at->last = std::max(at->last, position);
}

} // namespace

Windows weight_windows(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                       const std::vector<bool>& gathered, std::span<const std::int32_t> completed) {
    Windows result;
    if (gathered.empty()) return result;
    for (std::size_t i : order.order) {
        const Node& node = graph.nodes()[i];
        if (node.op->view) continue;
        std::vector<Window>& windows = result[static_cast<std::size_t>(order.parts[i])];
        for (ValueId input : node.inputs) {
            const Parameter* parameter = graph.parameter_of(graph.value(input).storage);
            if (parameter == nullptr) continue;
            const std::int32_t chunk = places.chunk_of(*parameter);
            if (!gathered[static_cast<std::size_t>(chunk)]) continue;
            extend(windows, chunk, order.position[i]);
            if (node.op->collective) extend(windows, chunk, completed[i]);
        }
    }
    for (std::vector<Window>& windows : result) {
        std::ranges::sort(windows, {}, &Window::first);
        for (std::size_t w = windows.size(); w-- > 1;) windows[w].first = windows[w - 1].first;
    }
    return result;
}

Windows gradient_windows(const Graph& graph, const NodeOrder& order, const StoredPlaces& places,
                         const std::vector<bool>& scattered) {
    Windows result;
    if (scattered.empty()) return result;
    for (const Output& output : graph.outputs()) {
        if (output.parameter == ValueId::none) continue;
        const std::size_t i = index(graph.value(output.value).producer);
        const std::int32_t chunk = places.chunk_of(*graph.parameter_of(output.parameter));
        if (scattered[static_cast<std::size_t>(chunk)])
            extend(result[static_cast<std::size_t>(order.parts[i])], chunk, order.position[i]);
    }
    for (std::vector<Window>& windows : result) {
        std::ranges::sort(windows, {}, &Window::last);
        for (std::size_t w = 0; w < windows.size(); ++w) {
            windows[w].used = windows[w].last;
            if (w + 1 < windows.size()) windows[w].last = windows[w + 1].last;
        }
    }
    return result;
}

} // namespace tutti::compile

// The borders of a pipeline stage in its graph: inputs and outputs with these names, followed by a number.
#pragma once

#include "graph/graph.h"

#include <optional>
#include <string>
#include <string_view>

namespace tutti::sharding {

inline constexpr std::string_view stage_input = "stage_input/", stage_output = "stage_output/",
                                  stage_input_gradient = "stage_input_gradient/",
                                  stage_output_gradient = "stage_output_gradient/";

// Which of the graph's inputs has the same number as this output: where the output's name begins with `of`, the input
// whose name begins with `to`.
inline std::optional<std::size_t> input_across(const Graph& graph, const Output& output, std::string_view of,
                                               std::string_view to) {
    if (!output.name.starts_with(of)) return std::nullopt;
    const std::string name = std::string(to) + output.name.substr(of.size());
    for (std::size_t i = 0; i < graph.inputs().size(); ++i)
        if (graph.value(graph.inputs()[i]).name == name) return i;
    return std::nullopt;
}

} // namespace tutti::sharding

// NodeOrder: when every node of a step graph runs, as a segment and a position in it, and which nodes read which
// values.
#pragma once

#include "graph/graph.h"

#include <vector>

namespace tutti::compile {

// Segments of one stage, in the order they run.
enum class Part : std::uint8_t { setup, forward, recompute, backward, weight_gradient };
constexpr std::size_t part_count = 5;

struct NodeOrder {
    std::vector<Part> parts{};            // per node
    std::vector<std::size_t> order{};     // nodes in the order they run
    std::vector<std::int32_t> position{}; // per node: its place in that order

    std::vector<int> uses{};          // per value: operands of nodes that it is
    std::vector<int> contributions{}; // per value: gradients of parameters that it is a part of
    // Per storage, the last node in order that reads it, or -1. Views read nothing; a contribution is read where it is
    // made.
    std::vector<std::int32_t> last_reader{};

    Part part_of(std::int32_t node) const { return parts[static_cast<std::size_t>(node)]; }
    std::int32_t end_of(Part part) const; // the last position of a part
};

// `split_backward`: weight gradients are a part of their own.
NodeOrder order_nodes(const Graph& graph, bool split_backward);

} // namespace tutti::compile

// Loop dims: which loop each dimension of each operand of an operator belongs to. From this one declaration follow the
// legal shardings, how cost divides, and where a micro-batch may be halved.
//
//   linear:      "r* k, n k, n -> r* n"      operands in order; r* stands for any number of leading dimensions
//   reshape:     "b (h d) -> b h d"          a dimension may be the product of several loops, slowest first
//   layer_norm:  "r* h!, h!, h! -> r* h!"    ! : the loop is whole, it may not be split
//   broadcast:   "b 1, b h -> b h"           1 : this dimension belongs to no loop
//   reduce_max:  "b h^ -> b"                 ^ : parts are combined by maximum, not by sum
//
// A loop that is in an output is free there: splitting it splits that output. A loop that is missing from an output is
// reduced: splitting it makes that output a partial result.
#pragma once

#include "base/combine.h"
#include "graph/graph.h"

#include <string>
#include <vector>

namespace tutti {

struct Loop {
    std::string name;
    std::int64_t size = 0;
    bool whole = false;
    Combine combine = Combine::sum; // how partial results of a split loop become the whole
};

struct LoopDims {
    using Dimension = std::vector<int>; // its loops, slowest first; empty: none

    std::vector<Loop> loops;
    std::vector<std::vector<Dimension>> inputs; // [operand][dimension]
    std::vector<std::vector<Dimension>> outputs;

    // The dimension of an operand that a loop strides through, and -1 where there is none.
    static int dimension_of(const std::vector<Dimension>& operand, int loop);
};

// Parses the operator's declaration and binds it to sizes. A declaration that contradicts itself is a defect.
LoopDims resolve_loops(const Operator& op, Types inputs, Types outputs, const Attributes& attributes);
LoopDims loops_of(const Graph& graph, const Node& node);

} // namespace tutti

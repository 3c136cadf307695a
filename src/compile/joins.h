// Concatenations that cost nothing: where every part of one can be written where it lies in the result, the kernels
// that make the parts do so, and none runs for the concatenation.
#pragma once

#include "compile/placement.h"

#include <map>
#include <vector>

namespace tutti {

struct Joins {
    std::vector<bool> joined; // per node: a concatenation that runs no kernel

    // Where a value lies that is written into a concatenation's result.
    struct Inside {
        ValueId whole = ValueId::none;
        Layout layout;
    };
    std::map<ValueId, Inside> inside;
};

// A part has to be the only use of what a kernel of the concatenation's segment makes, as it is or through views that
// keep every element, and the kernel has to be able to write its layout.
Joins find_joins(const Graph& graph, const std::vector<Part>& parts);

} // namespace tutti

// Values that are placed inside the buffer of another value. There are two cases, both decided by the readers of the
// values:
//
//   join:     where every part of a concatenation can be written where it lies in the result, the kernels that make the
//             parts do so, and none runs for the concatenation.
//   rewrite:  a kernel that may write over its input does so with a part of a split whose only reader it is. So the
//             rotated queries and keys take the place of the plain ones, next to the values.
#pragma once

#include "compile/node_order.h"

#include <map>
#include <vector>

namespace tutti::compile {

struct Joins {
    std::vector<bool> joined; // per node: a concatenation that runs no kernel

    // Where a value lies that is written into another's buffer.
    struct Inside {
        ValueId whole = ValueId::none;
        Layout layout;
    };
    std::map<ValueId, Inside> inside;
};

// A part of a concatenation has to be the only use of what a kernel of the concatenation's segment makes, as it is or
// through views that keep every element, and the kernel has to be able to write its layout. So it is with a part of a
// split and the kernel that writes over it, and all that read the result have to accept the layout, too.
Joins find_joins(const Graph& graph, const std::vector<Part>& parts);

} // namespace tutti::compile

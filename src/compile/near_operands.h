// Operands that a kernel of the same segment has touched a moment before: weights and gradients that halves of a
// micro-batch touch one after the other, and the like. They are likely to be in a cache.
#pragma once

#include "program/program.h"

namespace tutti::compile {

void mark_near_operands(Segment& segment);

} // namespace tutti::compile

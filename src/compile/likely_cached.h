// Marks operands that are likely to be in a cache, since a kernel of the same segment has just touched them, such as
// weights and gradients that both micro-batch halves touch one after the other.
#pragma once

#include "program/program.h"

namespace tutti::compile {

void mark_likely_cached(Segment& segment);

} // namespace tutti::compile

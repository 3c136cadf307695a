// The list of all operators. Each family is defined in a file of its own beside this one.
#pragma once

#include "graph/operator.h"

namespace tutti::ops {

const OperatorSet& all_operators();

} // namespace tutti::ops

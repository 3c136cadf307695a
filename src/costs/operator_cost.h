// The cost of a kernel: what its operator says, or else moving its operands once.
#pragma once

#include "graph/operator.h"
#include "program/program.h"

#include <vector>

namespace tutti::costs {

Cost cost_of(const OperatorSet& operators, std::string_view op, Types inputs, Types outputs,
             const Attributes& attributes);

std::vector<TensorType> types_of(const std::vector<Argument>& arguments);

} // namespace tutti::costs

// tutti plan --intra-op: how the operators of a model are shared along the tensor axis.
#pragma once

#include "cli/plan_options.h"

namespace tutti::cli {

int plan_intra_op(const std::string& model, const PlanOptions& options);

} // namespace tutti::cli

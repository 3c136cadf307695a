// tutti plan --intra-op: how the operators of a model are shared along the tensor axis.
#pragma once

#include "cli/arguments.h"
#include "cli/plan_joint.h"

namespace tutti::cli {

struct IntraOpFlags {
    CLI::Option *mesh = nullptr, *tensor_mesh = nullptr, *micro_batch = nullptr, *sequence = nullptr,
                *cluster = nullptr, *device = nullptr, *in_flight = nullptr, *memory_cap = nullptr, *epsilon = nullptr,
                *dtype = nullptr, *solver = nullptr, *time_limit = nullptr, *json = nullptr, *output = nullptr,
                *picture = nullptr;
};
// Those that both kinds of planning know are taken from `shared`.
IntraOpFlags add_intra_op_flags(CLI::App& app, const JointFlags& shared);
int plan_intra_op(const std::string& model, const IntraOpFlags& flags);

} // namespace tutti::cli

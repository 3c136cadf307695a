// tutti plan: scaling, splitting, schedule and assignment of a model on a cluster, chosen together.
#pragma once

#include "cli/arguments.h"

namespace tutti::cli {

struct JointFlags {
    CLI::Option *cluster = nullptr, *global_batch = nullptr, *sequence = nullptr, *dtype = nullptr, *master = nullptr,
                *moments = nullptr, *gradients = nullptr, *output = nullptr, *report = nullptr, *profile = nullptr,
                *evaluate = nullptr, *json = nullptr, *compare = nullptr, *what_if = nullptr;
};
JointFlags add_joint_flags(CLI::App& app);
int plan_joint(const std::string& model, const JointFlags& flags);

} // namespace tutti::cli

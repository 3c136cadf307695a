#include "run/kept_config.h"

#include "base/file.h"
#include "base/system_error.h"
#include "plan/settings_table.h"
#include "run/run_folder.h"
#include "run/run_options.h"

#include <algorithm>
#include <array>

namespace tutti::run {
namespace {

template <class Keys>
bool holds(const Keys& keys, std::string_view key) {
    return std::ranges::find(keys, key) != std::end(keys);
}

// How one process of the run was started, and where it ended or showed its work.
bool is_of_one_start(const RunOption& option) {
    static constexpr std::array<std::string_view, 9> keys = {
        "resume", "resume_from", "allow_changed_data", "stop_after", "dry_run", "gpu", "dump_step0", "trace", "report"};
    return holds(keys, option.key);
}

// Empty, or 0 where that leaves the number to the machine, the ranks or the planner: no setting.
bool is_left_open(const RunOption& option, const SettingValue& value) {
    static constexpr std::array<std::string_view, 11> keys = {
        "sequence",    "global_batch", "micro_batch",     "threads",        "chunk_elements", "device_memory",
        "host_memory", "ranks",        "stages_per_rank", "model_replicas", "in_flight"};
    return value == SettingValue(std::string()) || (holds(keys, option.key) && to_plain(value) == "0");
}

// What stands in the plan that a run follows, and not in its config beside it: but for what its losses follow from, and
// the device, as a plan runs on any.
bool is_in_plan(const RunOption& option) {
    static constexpr std::array<std::string_view, 8> asked_otherwise = {
        "mesh",           "ranks",     "schedule",  "stages_per_rank",
        "model_replicas", "in_flight", "recompute", "offload_activations"};
    static constexpr std::array<std::string_view, 7> beside = {"device", "sequence",  "global_batch", "dtype",
                                                               "master", "gradients", "moments"};
    return holds(asked_otherwise, option.key) ||
           (!holds(beside, option.key) && std::ranges::any_of(plan_settings(), [&](const PlanSetting& setting) {
               return setting.key == option.key;
           }));
}

// Of a path that was given from the current folder, without the ways round in it.
void make_absolute(std::string& path) {
    if (path.empty()) return;
    std::error_code failed;
    const fs::path whole = fs::absolute(std::string(path), failed);
    if (failed) fail_system(failed.value(), "cannot tell the current folder, in which {} is", path);
    const fs::path plain = whole.lexically_normal();
    // Where LINK is a link, LINK/.. need not be the folder that it is in.
    const bool is_same = fs::weakly_canonical(plain, failed) == fs::weakly_canonical(whole, failed) && !failed;
    path = (is_same ? plain : whole).string();
}

RunConfig with_absolute_paths(RunConfig config) {
    if (is_folder(config.model)) make_absolute(config.model); // else the name of a built-in one
    if (config.data != "builtin") make_absolute(config.data);
    if (config.eval_data != "builtin") make_absolute(config.eval_data);
    for (std::string* path : {&config.output, &config.disk, &config.plan, &config.metrics}) make_absolute(*path);
    return config;
}

RunConfig settings_of_run(RunConfig resolved, const RunConfig& asked, bool chosen) {
    resolved.workload.micro_batch = asked.workload.micro_batch;
    if (chosen) {
        resolved.mesh.reset();
        return resolved;
    }
    const bool were_counted = !asked.mesh && asked.ranks == 0 && resolved.ranks > 1; // as mpirun started them
    if (!were_counted) resolved.mesh = asked.mesh;
    resolved.ranks = resolved.mesh ? 0 : asked.ranks;
    resolved.schedule = asked.schedule;
    return resolved;
}

} // namespace

std::string kept_config(const RunConfig& resolved, const RunConfig& asked, bool chosen) {
    RunConfig kept = settings_of_run(resolved, asked, chosen);
    const bool follows = !kept.plan.empty();
    if (follows) kept.plan = (fs::path(kept.output) / "plan.json").string(); // the plan as it was completed
    kept = with_absolute_paths(std::move(kept));
    return fmt::format("{}: tutti train --config FILE --resume goes on with it.\n", config_head) +
           to_toml(kept, [&](const RunOption& option) {
               return !is_of_one_start(option) && !is_left_open(option, option.get(kept)) &&
                      !(follows && is_in_plan(option));
           });
}

} // namespace tutti::run

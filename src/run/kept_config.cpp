#include "run/kept_config.h"

#include "base/file.h"
#include "base/system_error.h"
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

// Of a path that was given from the current folder.
void make_absolute(std::string& path) {
    if (path.empty()) return;
    std::error_code failed;
    path = fs::absolute(std::string(path), failed).string();
    if (failed) fail_system(failed.value(), "cannot tell the current folder, in which {} is", path);
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
    const RunConfig kept = with_absolute_paths(settings_of_run(resolved, asked, chosen));
    return fmt::format("{}: tutti train --config FILE --resume goes on with it.\n", config_head) +
           to_toml(kept, [&](const RunOption& option) {
               return !is_of_one_start(option) && !is_left_open(option, option.get(kept));
           });
}

} // namespace tutti::run

#include "resolve/asked.h"

#include "base/error.h"
#include "base/file.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "models/builtin.h"
#include "resolve/plan_to_follow.h"
#include "run/layout.h"
#include "run/run_options.h"

namespace tutti::resolve {
namespace {

// The file's mesh, and what goes with it, are for another number of ranks than the command line asks for. Returns what
// is left out then.
std::string leave_file_mesh_out(AskedOptions& asked) {
    run::RunConfig& config = asked.config;
    if (!asked.typed.contains("ranks") || asked.typed.contains("mesh") || !config.mesh || config.ranks == 0 ||
        config.mesh->ranks() == config.ranks)
        return "";
    std::string told = fmt::format("--ranks {} wins over mesh {} of {}", config.ranks,
                                   sharding::to_string(*config.mesh), asked.file_name);
    for (const char* key : {"mesh", "schedule", "stages_per_rank", "model_replicas", "in_flight"}) {
        if (asked.typed.contains(key)) continue;
        const run::RunOption& option = *run::find_run_option(key);
        option.set(config, option.get(run::RunConfig{}));
        asked.file.erase(key);
    }
    return told;
}

AskedOptions read(const GivenOptions& given, int started) {
    AskedOptions asked{.started = started};
    run::RunConfig& config = asked.config;
    if (given.config) {
        asked.file_name = *given.config;
        for (std::string& key : run::read_run_config(config, *given.config)) asked.file.insert(std::move(key));
    }
    for (std::size_t i = 0; i < given.flags.size(); ++i) {
        const auto& text = given.flags[i];
        if (!text) continue;
        const run::RunOption& option = run::run_options()[i];
        const std::string name = i < given.names.size() ? given.names[i] : "";
        if (text->starts_with("--"))
            fail("{} needs a value, but {} follows it", name.empty() ? option.flag() : name, *text);
        run::set_from_text(config, option, *text, name);
        asked.typed.insert(option.key);
    }
    if (config.mesh && asked.typed.contains("mesh") && !asked.typed.contains("ranks")) { // the file's: of another mesh
        config.ranks = run::RunConfig{}.ranks;
        asked.file.erase("ranks");
    }
    return asked;
}

} // namespace

AskedRun asked_run(const GivenOptions& given, int started) {
    AskedOptions asked = read(given, started);
    const std::string left_out = leave_file_mesh_out(asked);
    AskedRun run = with_plan_to_follow(asked);
    if (run.told.empty() && !left_out.empty()) run.told.push_back(left_out);
    return run;
}

run::RunConfig resolve_run(const run::RunConfig& asked, int started, bool chosen) {
    run::RunConfig config = run::with_layout(asked, started);
    if (models::find_builtin(config.model) && !is_folder(config.model)) config.from_scratch = true; // it has no weights
    if (const costs::DeviceKind* kind = costs::find_device_preset(config.gpu))
        if (config.device == run::RunConfig{}.device) config.device = kind->run_device; // what else
    run::RunConfig checked = config;
    if (chosen) checked.mesh = sharding::Mesh{.tensor = config.ranks}; // all see the whole batch
    run::check(checked);
    return config;
}

namespace {

// What a file says and is the default was not asked for: files that runs leave behind say everything.
bool is_given(const run::RunOption& option, const GivenOptions& given, const run::RunConfig& asked) {
    const auto number = static_cast<std::size_t>(&option - run::run_options().data());
    if (option.get(asked) == SettingValue(std::string())) return false; // --plan "": none
    return (number < given.flags.size() && given.flags[number]) || option.get(asked) != option.get(run::RunConfig{});
}

} // namespace

std::string settled_by(const GivenOptions& given, const run::RunConfig& asked) {
    static const OptionKeys layout = {"gpu",
                                      "mesh",
                                      "plan",
                                      "schedule",
                                      "stages_per_rank",
                                      "model_replicas",
                                      "in_flight",
                                      "sub_pipeline",
                                      "eviction",
                                      "sequence_parallel",
                                      "chunk_elements",
                                      "prefetch",
                                      "device_memory",
                                      "host_memory",
                                      "optimizer_placement",
                                      "disk",
                                      "split_backward"};
    for (const run::RunOption& option : run::run_options())
        if (layout.contains(option.key) && is_given(option, given, asked)) return option.flag();
    if (asked.recompute.share > 0 && asked.recompute.share < 1) return "--recompute";
    if (!asked.rank_threads.empty()) return "--threads";
    if (asked.precision.compute == DType::float64) return "--dtype";
    const devices::DeviceEntry* device = devices::find_device(asked.device);
    return device && !device->is_planned_for ? "--device" : "";
}

std::optional<run::LayoutFreedom> freedom_of(const GivenOptions& given, const run::RunConfig& asked) {
    if (!settled_by(given, asked).empty()) return std::nullopt;
    run::LayoutFreedom freedom;
    for (const run::RunOption& option : run::run_options()) {
        if (!is_given(option, given, asked)) continue;
        if (option.key == "micro_batch") freedom.micro_batch = asked.workload.micro_batch == 0;
        if (option.key == "zero") freedom.zero = false;
        if (option.key == "recompute") freedom.recompute = asked.recompute.automatic;
    }
    return freedom;
}

} // namespace tutti::resolve

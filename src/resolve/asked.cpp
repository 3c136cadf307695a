#include "resolve/asked.h"

#include "base/error.h"
#include "base/file.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "formats/json.h"
#include "models/builtin.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "run/run_options.h"

#include <set>

namespace tutti::resolve {
namespace {

using Keys = std::set<std::string, std::less<>>;

// Values that leave a decision to others: no plan contradicts them.
bool is_left_open(const run::RunOption& option, const run::RunConfig& config) {
    static const Keys open = {"sequence",  "global_batch",    "micro_batch",        "mesh",
                              "schedule",  "stages_per_rank", "model_replicas",     "in_flight",
                              "recompute", "updates",         "offload_activations"};
    return open.contains(option.key) && option.get(config) == option.get(run::RunConfig{});
}

run::RunConfig following_plan(const run::RunConfig& config, const Plan& plan, const Keys& given) {
    if (!given.contains("model"))
        fail("which model? {} is a plan for a {}, and does not hold the model: tutti train MODEL --plan {}",
             config.plan, formats::in_quotes(plan.model), config.plan);
    run::RunConfig planned = with_plan(config, plan);
    if (given.contains("device")) planned.device = config.device; // the same plan runs on any
    for (const run::RunOption& option : run::run_options()) {
        if (!given.contains(option.key) || option.get(config) == option.get(planned) || is_left_open(option, config))
            continue;
        const std::string said = to_plain(option.get(planned));
        fail("{} is {}, but the plan {} says {}: leave {} or --plan out", option.key, to_plain(option.get(config)),
             config.plan,
             option.key == "recompute" || option.key == "offload_activations" ? "which blocks"
             : said.empty()                                                   ? "none"
                                                                              : said,
             option.flag());
    }
    return planned;
}

} // namespace

AskedRun asked_run(const GivenOptions& given) {
    run::RunConfig config;
    Keys keys, flags;
    if (given.config)
        for (std::string& key : run::read_run_config(config, *given.config)) keys.insert(std::move(key));
    for (std::size_t i = 0; i < given.flags.size(); ++i) {
        const auto& text = given.flags[i];
        if (!text) continue;
        const run::RunOption& option = run::run_options()[i];
        if (text->starts_with("--")) fail("{} needs a value, but {} follows it", option.flag(), *text);
        run::set_from_text(config, option, *text);
        flags.insert(option.key);
    }
    if (config.mesh && flags.contains("mesh") && !flags.contains("ranks")) { // the file's are of another mesh
        config.ranks = run::RunConfig{}.ranks;
        keys.erase("ranks");
    }
    keys.merge(flags);
    std::optional<Plan> plan = followed_plan(config, nullptr);
    if (plan) config = following_plan(config, *plan, keys);
    return {std::move(config), std::move(plan)};
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
    return (number < given.flags.size() && given.flags[number]) || option.get(asked) != option.get(run::RunConfig{});
}

} // namespace

std::string settled_by(const GivenOptions& given, const run::RunConfig& asked) {
    static const Keys layout = {"gpu",
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

#include "cli/resolve.h"

#include "base/error.h"
#include "cli/run_options.h"
#include "formats/json.h"
#include "train/layout.h"
#include "train/run_plan.h"

#include <set>

namespace tutti::cli {
namespace {

using Keys = std::set<std::string, std::less<>>;

// Values that leave a decision to others: no plan contradicts them.
bool is_left_open(const RunOption& option, const RunConfig& config) {
    static const Keys open = {"sequence",           "global_batch", "micro_batch", "mesh",      "schedule",
                              "stages_per_rank",    "copies",       "in_flight",   "recompute", "updates",
                              "offload_activations"};
    return open.contains(option.key) && option.get(config) == option.get(RunConfig{});
}

RunConfig following_plan(const RunConfig& config, const Keys& given) {
    const Plan plan = read_plan(config.plan);
    if (!given.contains("model"))
        fail("which model? {} is a plan for a {}, and does not hold the model: tutti train MODEL --plan {}",
             config.plan, in_quotes(plan.model), config.plan);
    RunConfig planned = with_plan(config, plan);
    if (given.contains("device")) planned.device = config.device; // the same plan runs on any
    for (const RunOption& option : run_options()) {
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

RunConfig asked_run(const GivenOptions& given) {
    RunConfig config;
    Keys keys;
    if (given.config)
        for (std::string& key : read_run_config(config, *given.config)) keys.insert(std::move(key));
    for (std::size_t i = 0; i < given.flags.size(); ++i) {
        const auto& text = given.flags[i];
        if (!text) continue;
        const RunOption& option = run_options()[i];
        if (text->starts_with("--")) fail("{} needs a value, but {} follows it", option.flag(), *text);
        set_from_text(config, option, *text);
        keys.insert(option.key);
    }
    return config.plan.empty() ? config : following_plan(config, keys);
}

RunConfig resolve_run(const RunConfig& asked, int started) {
    RunConfig config = with_layout(asked, started);
    check(config);
    return config;
}

} // namespace tutti::cli

#include "run/settings.h"

#include "data/data_files.h"
#include "formats/json.h"

#include <fmt/format.h>

namespace tutti::run {

nlohmann::ordered_json recorded_settings(const RunConfig& config, const Workload& workload) {
    nlohmann::ordered_json settings = {{"data", data::recorded_data(config.data)},
                                       {"dtype", name_of(config.precision.compute)},
                                       {"sequence", workload.sequence},
                                       {"global_batch", workload.global_batch},
                                       {"beta1", config.beta1},
                                       {"beta2", config.beta2},
                                       {"eps", config.eps},
                                       {"weight_decay", config.weight_decay},
                                       {"clip", config.clip},
                                       {"lr", config.lr},
                                       {"lr_schedule", name_of(config.lr_schedule)},
                                       {"warmup", config.warmup}};
    if (config.lr_schedule == LearningRateSchedule::constant) return settings;
    settings["steps"] = config.steps;
    settings["lr_min"] = config.lr_min;
    if (config.lr_schedule == LearningRateSchedule::warmup_stable_decay) settings["decay_share"] = config.decay_share;
    return settings;
}

std::string learning_rate_jump(const nlohmann::ordered_json& then, const RunConfig& now, std::int64_t steps_done) {
    RunConfig was = now;
    auto take = [&](const char* key, auto& into) {
        if (then.contains(key) && then[key].is_number()) then[key].get_to(into);
    };
    take("lr", was.lr);
    take("lr_min", was.lr_min);
    take("warmup", was.warmup);
    take("decay_share", was.decay_share);
    take("steps", was.steps);
    if (then.contains("lr_schedule") && then["lr_schedule"].is_string())
        was.lr_schedule = parse_schedule(then["lr_schedule"].get<std::string>()).value_or(now.lr_schedule);
    const double last = learning_rate(was, steps_done - 1);
    if (steps_done == 0 || steps_done >= now.steps || last == learning_rate(now, steps_done - 1)) return {};
    return fmt::format("; its learning rate was {:.2e} at last, and goes on at {:.2e}", last,
                       learning_rate(now, steps_done));
}

std::string changed_settings(const nlohmann::ordered_json& then, const nlohmann::ordered_json& now) {
    auto shown = [](const nlohmann::ordered_json& value) {
        return value.is_string() ? formats::in_quotes(value.get<std::string>()) : value.dump();
    };
    std::string changes;
    for (const auto& [key, value] : now.items())
        if (then.contains(key) && then[key].is_primitive() && then[key] != value)
            changes +=
                fmt::format("{}{} {} (now {})", changes.empty() ? "" : ", ", key, shown(then[key]), shown(value));
    return changes;
}

} // namespace tutti::run

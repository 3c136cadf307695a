#include "train/settings.h"

#include "formats/json.h"

#include <fmt/format.h>

namespace tutti {

nlohmann::ordered_json recorded_settings(const RunConfig& config, const Workload& workload) {
    nlohmann::ordered_json settings = {{"data", config.data},
                                       {"dtype", name_of(config.dtype)},
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

std::string changed_settings(const nlohmann::ordered_json& then, const nlohmann::ordered_json& now) {
    auto shown = [](const nlohmann::ordered_json& value) {
        return value.is_string() ? in_quotes(value.get<std::string>()) : value.dump();
    };
    std::string changes;
    for (const auto& [key, value] : now.items())
        if (then.contains(key) && then[key].is_primitive() && then[key] != value)
            changes +=
                fmt::format("{}{} {} (now {})", changes.empty() ? "" : ", ", key, shown(then[key]), shown(value));
    return changes;
}

} // namespace tutti

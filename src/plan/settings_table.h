// The table of PlanSettings: one row for each, from which follow its flag and TOML key (run/run_option_table.cpp adds
// help) and its place in a plan's file.
#pragma once

#include "plan/plan_settings.h"
#include "plan/setting.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace tutti {

namespace formats {
class JsonObject;
}

struct PlanSetting {
    std::string_view key{};        // of flag and TOML: micro_batch
    std::string_view section{};    // the object of the file that it is in, as in "workload"; empty: the file's own
    std::string_view name{};       // there
    std::string_view first_name{}; // there in version 1, where that was another
    std::int64_t since = 1;        // the first version of plan files that has it
    bool optional = false;         // written only where it differs from its default, which holds where it is absent
    Setting<PlanSettings> given{};
    std::function<nlohmann::ordered_json(const PlanSettings&)> to_json{};
    // Error naming the file and the key.
    std::function<void(PlanSettings&, const formats::JsonObject&, std::string_view name)> read{};
};

// In the order of a plan's file.
std::span<const PlanSetting> plan_settings();
const PlanSetting& plan_setting(std::string_view key);

// The part of a plan's file that they are: those that files have since this version. Reading leaves those out that the
// version does not have.
void add_settings(nlohmann::ordered_json& json, const PlanSettings& settings, std::int64_t since);
void read_settings(PlanSettings& settings, const formats::JsonObject& json, std::int64_t version);

} // namespace tutti

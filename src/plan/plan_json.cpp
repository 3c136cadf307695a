// The plan's file.
#include "base/checked.h"
#include "base/error.h"
#include "formats/json.h"
#include "plan/decisions_json.h"
#include "plan/plan.h"
#include "plan/schedule_json.h"
#include "plan/settings_table.h"
#include "plan/strategies_json.h"

#include <algorithm>

namespace tutti {
namespace {

std::vector<int> numbers_in(const nlohmann::json& json, std::string_view key, const std::string& where) {
    std::vector<int> list;
    const bool numbers =
        json.is_array() && std::ranges::all_of(json, [](const nlohmann::json& one) {
            return one.is_number_integer() && (!one.is_number_unsigned() || one.get<std::uint64_t>() <= INT64_MAX);
        });
    if (!numbers) fail("{}: {} should be a list of integers", where, key);
    for (const nlohmann::json& one : json) list.push_back(clamp_to_int(one.get<std::int64_t>()));
    return list;
}

std::vector<int> read_list(const formats::JsonObject& json, std::string_view key) {
    const nlohmann::json* list = json.find(key);
    return numbers_in(list == nullptr ? nlohmann::json() : *list, key, json.where());
}

// Of each stage.
std::vector<std::vector<int>> read_blocks(const formats::JsonObject& json, std::string_view key) {
    const nlohmann::json* lists = json.find(key);
    if (lists == nullptr || !lists->is_array() ||
        !std::ranges::all_of(*lists, [](const nlohmann::json& one) { return one.is_array(); }))
        fail("{}: {} should be a list with a list of blocks for each stage, as in [[0, 1], []]", json.where(), key);
    std::vector<std::vector<int>> blocks;
    for (const nlohmann::json& list : *lists) blocks.push_back(numbers_in(list, key, json.where()));
    return blocks;
}

void read_layout(const formats::JsonObject& json, Plan& plan) {
    const formats::JsonObject mesh = json.object("mesh");
    plan.mesh = {.pipe = clamp_to_int(mesh.integer("pipe")),
                 .data = clamp_to_int(mesh.integer("data")),
                 .tensor = clamp_to_int(mesh.integer("tensor"))};
    mesh.expect_no_others();
    plan.cuts = read_list(json, "cuts");
    plan.recompute = read_blocks(json, "recompute");
    if (json.find("offload")) plan.offload = read_blocks(json, "offload");
}

PlannedDevices read_devices(const formats::JsonObject& json) {
    PlannedDevices devices;
    for (const nlohmann::json& one : json.list("nodes")) {
        const formats::JsonObject node(one, json.where() + ": nodes");
        devices.nodes.push_back(
            {node.string("kind"), clamp_to_int(node.integer("nodes")), clamp_to_int(node.integer("devices"))});
        node.expect_no_others();
    }
    devices.ranks = read_list(json, "ranks");
    json.expect_no_others();
    return devices;
}

Prediction read_prediction(const formats::JsonObject& json) {
    Prediction prediction{.step = {json.number("step_seconds")}};
    for (const nlohmann::json& one : json.list("memory_bytes_of_pipe_ranks")) {
        if (!one.is_number_unsigned() || one.get<std::uint64_t>() > INT64_MAX)
            fail("{}: memory_bytes_of_pipe_ranks should be a list of bytes", json.where());
        prediction.memory.push_back({one.get<std::int64_t>()});
    }
    json.expect_no_others();
    return prediction;
}

void read_decisions(const formats::JsonObject& json, const std::string& file, Plan& plan) {
    if (const nlohmann::json* fusion = json.find("fusion")) plan.fusion = fusion_from_json(*fusion, file);
    if (const nlohmann::json* residency = json.find("residency"))
        plan.residency = residency_from_json(*residency, file);
    if (const nlohmann::json* kernels = json.find("timed_kernels"))
        plan.timed_kernels = timed_kernels_from_json(*kernels, file);
}

nlohmann::ordered_json prediction_to_json(const Prediction& prediction) {
    std::vector<std::int64_t> memory;
    for (const Bytes& bytes : prediction.memory) memory.push_back(bytes.count);
    return {{"step_seconds", prediction.step.count}, {"memory_bytes_of_pipe_ranks", memory}};
}

nlohmann::ordered_json devices_to_json(const PlannedDevices& devices) {
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (const PlannedNodes& one : devices.nodes)
        nodes.push_back({{"kind", one.kind}, {"nodes", one.nodes}, {"devices", one.devices}});
    return {{"nodes", nodes}, {"ranks", devices.ranks}};
}

} // namespace

std::string to_json(const Plan& plan) {
    nlohmann::ordered_json json;
    json["tutti_plan"] = Plan::version;
    json["model"] = plan.model;
    if (plan.parameters > 0) json["parameters"] = plan.parameters;
    add_settings(json, plan, 1);
    json["mesh"] = {{"data", plan.mesh.data}, {"pipe", plan.mesh.pipe}, {"tensor", plan.mesh.tensor}};
    add_settings(json, plan, 4);
    json["cuts"] = plan.cuts;
    json["recompute"] = plan.recompute;
    if (!plan.offload.empty()) json["offload"] = plan.offload;
    if (plan.strategies) json["strategies"] = strategies_to_json(*plan.strategies);
    if (plan.devices) json["devices"] = devices_to_json(*plan.devices);
    if (plan.predicted) json["predicted"] = prediction_to_json(*plan.predicted);
    if (plan.schedule) json["schedule"] = schedule_to_json(*plan.schedule);
    if (plan.fusion) json["fusion"] = fusion_to_json(*plan.fusion);
    if (plan.residency) json["residency"] = residency_to_json(*plan.residency);
    if (!plan.timed_kernels.empty()) json["timed_kernels"] = plan.timed_kernels;
    return json.dump(2) + "\n";
}

Plan parse_plan(const std::string& text, const std::string& file) {
    const nlohmann::json parsed = formats::parse_json(text, file);
    if (!parsed.is_object() || !parsed.contains("tutti_plan") || !parsed["tutti_plan"].is_number_integer())
        fail("{} is no plan: it is not a JSON object with the plan's version under \"tutti_plan\"", file);
    const formats::JsonObject json(parsed, file);
    const std::int64_t version = json.integer("tutti_plan");
    if (version < 1 || version > Plan::version)
        fail("{} is a plan of version {}; this program reads versions 1 to {}", file, version, Plan::version);
    Plan plan;
    plan.model = json.string("model");
    plan.parameters = json.find_integer("parameters").value_or(0);
    read_settings(plan, json, version);
    if (const nlohmann::json* schedule = json.find("schedule")) plan.schedule = schedule_from_json(*schedule, file);
    if (version >= 4)
        read_layout(json, plan);
    else if (plan.schedule)
        plan.mesh.pipe = plan.schedule->schedule.parameters.ranks;
    auto find = [&](std::string_view key, std::int64_t since) { return version < since ? nullptr : json.find(key); };
    if (const nlohmann::json* strategies = find("strategies", 5))
        plan.strategies = strategies_from_json(*strategies, file);
    if (const nlohmann::json* devices = find("devices", 6)) plan.devices = read_devices({*devices, file + ": devices"});
    if (const nlohmann::json* predicted = json.find("predicted"))
        plan.predicted = read_prediction({*predicted, file + ": predicted"});
    if (version >= 7) read_decisions(json, file, plan);
    json.expect_no_others();
    try {
        if (version >= 4 && plan.model != Plan::no_model) check_stages(plan);
        check(plan);
    } catch (const Error& error) {
        fail("{}: {}", file, error.what());
    }
    return plan;
}

} // namespace tutti

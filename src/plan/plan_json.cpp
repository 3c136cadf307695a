// The plan's file.
#include "base/checked.h"
#include "base/error.h"
#include "formats/json.h"
#include "plan/decisions_json.h"
#include "plan/plan.h"
#include "plan/schedule_json.h"
#include "plan/strategies_json.h"

#include <limits>

namespace tutti {
namespace {

DType read_dtype(const formats::JsonObject& json, std::string_view key) {
    const std::string name = json.string(key);
    const auto dtype = parse_dtype(name);
    if (!dtype || !is_floating(*dtype))
        fail("{}: {} is {}, which is no floating type", json.where(), key, formats::in_quotes(name));
    return *dtype;
}

Precision read_precision(const formats::JsonObject& json, std::int64_t version) {
    auto read = [&](const char* key) { return read_dtype(json, version == 1 ? "states" : key); };
    return {read_dtype(json, "compute"), read("gradients"), read("master"), read("moments")};
}

// One of few words; the default where there is none.
template <class T, class Parse>
T choice(const formats::JsonObject& json, std::string_view key, T otherwise, Parse parse, const char* words) {
    const auto word = json.find_string(key);
    if (!word) return otherwise;
    const std::optional<T> parsed = parse(*word);
    if (!parsed) fail("{}: {} is {}; it has to be one of {}", json.where(), key, formats::in_quotes(*word), words);
    return *parsed;
}

std::vector<int> read_list(const nlohmann::json& json, std::string_view key, const std::string& where) {
    std::vector<int> list;
    const bool numbers =
        json.is_array() && std::ranges::all_of(json, [](const nlohmann::json& one) {
            return one.is_number_integer() && (!one.is_number_unsigned() || one.get<std::uint64_t>() <= INT64_MAX);
        });
    if (!numbers) fail("{}: {} should be a list of integers", where, key);
    for (const nlohmann::json& one : json) list.push_back(clamp_to_int(one.get<std::int64_t>()));
    return list;
}

void read_layout(const formats::JsonObject& json, Plan& plan) {
    const formats::JsonObject mesh = json.object("mesh");
    plan.mesh = {.pipe = clamp_to_int(mesh.integer("pipe")),
                 .data = clamp_to_int(mesh.integer("data")),
                 .tensor = clamp_to_int(mesh.integer("tensor"))};
    plan.zero = clamp_to_int(json.integer("zero"));
    plan.device_memory = {json.find_integer("device_memory").value_or(0)};
    plan.host_memory = {json.find_integer("host_memory").value_or(0)};
    plan.optimizer_placement = choice(json, "optimizer_placement", plan.optimizer_placement,
                                      offload::parse_optimizer_placement, "auto, device, host");
    plan.eviction = choice(json, "eviction", plan.eviction, offload::parse_eviction, "farthest, lru, fifo");
    plan.prefetch = json.find_boolean("prefetch").value_or(true);
    plan.updates = choice(json, "updates", plan.updates, offload::parse_update_time, "auto, backward, end, next");
    plan.gradients_over_weights = json.find_boolean("gradients_over_weights").value_or(true);
    plan.sequence_parallel = json.boolean("sequence_parallel");
    plan.sub_pipeline = json.boolean("sub_pipeline");
    plan.cuts = read_list(json.value().value("cuts", nlohmann::json()), "cuts", json.where());
    auto read_lists = [&](const char* key, const nlohmann::json& lists) {
        if (!lists.is_array()) fail("{}: {} should be a list of lists of integers", json.where(), key);
        std::vector<std::vector<int>> result;
        for (const nlohmann::json& list : lists) result.push_back(read_list(list, key, json.where()));
        return result;
    };
    plan.recompute = read_lists("recompute", json.value().value("recompute", nlohmann::json()));
    plan.offload = read_lists("offload", json.value().value("offload", nlohmann::json::array()));
}

PlannedDevices read_devices(const formats::JsonObject& json) {
    PlannedDevices devices;
    for (const nlohmann::json& one : json.list("nodes")) {
        const formats::JsonObject node(one, json.where() + ": nodes");
        devices.nodes.push_back(
            {node.string("kind"), clamp_to_int(node.integer("nodes")), clamp_to_int(node.integer("devices"))});
    }
    devices.ranks = read_list(json.value().value("ranks", nlohmann::json()), "ranks", json.where());
    return devices;
}

Prediction read_prediction(const formats::JsonObject& json) {
    Prediction prediction{.step = {json.number("step_seconds")}};
    for (const nlohmann::json& one : json.list("memory_bytes_of_pipe_ranks")) {
        if (!one.is_number_unsigned() || one.get<std::uint64_t>() > INT64_MAX)
            fail("{}: memory_bytes_of_pipe_ranks should be a list of bytes", json.where());
        prediction.memory.push_back({one.get<std::int64_t>()});
    }
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
    json["device"] = plan.device;
    json["workload"] = {{"sequence", plan.workload.sequence},
                        {"global_batch", plan.workload.global_batch},
                        {"micro_batch", plan.workload.micro_batch}};
    json["precision"] = {{"compute", name_of(plan.precision.compute)},
                         {"gradients", name_of(plan.precision.gradients)},
                         {"master", name_of(plan.precision.master)},
                         {"moments", name_of(plan.precision.moments)}};
    json["chunk_elements"] = plan.chunk_elements;
    json["split_backward"] = plan.split_backward;
    json["mesh"] = {{"data", plan.mesh.data}, {"pipe", plan.mesh.pipe}, {"tensor", plan.mesh.tensor}};
    json["zero"] = plan.zero.stage();
    if (plan.device_memory.count > 0) json["device_memory"] = plan.device_memory.count;
    if (plan.host_memory.count > 0) json["host_memory"] = plan.host_memory.count;
    const Plan defaults;
    if (plan.optimizer_placement != defaults.optimizer_placement)
        json["optimizer_placement"] = offload::name_of(plan.optimizer_placement);
    if (plan.eviction != defaults.eviction) json["eviction"] = offload::name_of(plan.eviction);
    if (!plan.prefetch) json["prefetch"] = false;
    if (plan.updates != defaults.updates) json["updates"] = offload::name_of(plan.updates);
    if (!plan.gradients_over_weights) json["gradients_over_weights"] = false;
    json["sequence_parallel"] = plan.sequence_parallel;
    json["sub_pipeline"] = plan.sub_pipeline;
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
    plan.device = json.string("device");
    const formats::JsonObject workload = json.object("workload");
    plan.workload = {workload.integer("sequence"), workload.integer("global_batch"), workload.integer("micro_batch")};
    plan.precision = read_precision(json.object("precision"), version);
    plan.chunk_elements = json.integer("chunk_elements");
    plan.split_backward = json.boolean("split_backward");
    if (const nlohmann::json* schedule = json.find("schedule")) plan.schedule = schedule_from_json(*schedule, file);
    if (version >= 4)
        read_layout(json, plan);
    else if (plan.schedule)
        plan.mesh.pipe = plan.schedule->schedule.parameters.ranks;
    if (const nlohmann::json* strategies = json.find("strategies"); strategies != nullptr && version >= 5)
        plan.strategies = strategies_from_json(*strategies, file);
    if (const nlohmann::json* devices = json.find("devices"); devices != nullptr && version >= 6)
        plan.devices = read_devices({*devices, file + ": devices"});
    if (const nlohmann::json* predicted = json.find("predicted"))
        plan.predicted = read_prediction({*predicted, file + ": predicted"});
    if (version >= 7) read_decisions(json, file, plan);
    try {
        if (version >= 4 && plan.model != Plan::no_model) check_stages(plan);
        check(plan);
    } catch (const Error& error) {
        fail("{}: {}", file, error.what());
    }
    return plan;
}

} // namespace tutti

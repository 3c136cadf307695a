#include "plan/plan.h"

#include "base/error.h"
#include "plan/schedule_json.h"

#include <nlohmann/json.hpp>

namespace tutti {

void check(const Plan& plan) {
    const Workload& w = plan.workload;
    if (w.sequence <= 0) fail("sequence is {}; it has to be at least 1", w.sequence);
    if (w.micro_batch <= 0) fail("micro_batch is {}; it has to be at least 1", w.micro_batch);
    if (w.global_batch <= 0) fail("global_batch is {}; it has to be at least 1", w.global_batch);
    if (w.global_batch % w.micro_batch != 0)
        fail("global_batch {} is not a multiple of micro_batch {}", w.global_batch, w.micro_batch);
    const Precision& p = plan.precision;
    const DType wide = p.compute == DType::float64 ? DType::float64 : DType::float32;
    if (p.gradients != wide)
        fail("gradients are {}; with {} they have to be {}", name_of(p.gradients), name_of(p.compute), name_of(wide));
    if (p.master != wide && p.master != p.compute)
        fail("master is {}; with {} it has to be {}", name_of(p.master), name_of(p.compute),
             wide == p.compute ? std::string(name_of(wide))
                               : fmt::format("{} or {}", name_of(wide), name_of(p.compute)));
    if (p.moments != wide && (p.moments != DType::bfloat16 || wide == DType::float64))
        fail("moments are {}; with {} they have to be {}", name_of(p.moments), name_of(p.compute),
             wide == DType::float64 ? "float64" : "float32 or bf16");
    if (plan.chunk_elements <= 0) fail("chunk_elements is {}; it has to be at least 1", plan.chunk_elements);
}

std::string to_json(const Plan& plan) {
    nlohmann::ordered_json json;
    json["tutti_plan"] = Plan::version;
    json["model"] = plan.model;
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
    if (plan.schedule) json["schedule"] = schedule_to_json(*plan.schedule);
    return json.dump(2) + "\n";
}

namespace {

DType read_dtype(const nlohmann::json& json, const char* key, const std::string& file) {
    const std::string name = json.at(key).get<std::string>();
    const auto dtype = parse_dtype(name);
    if (!dtype || !is_floating(*dtype)) fail("{}: {} is \"{}\", which is no floating type", file, key, name);
    return *dtype;
}

Precision read_precision(const nlohmann::json& json, int version, const std::string& file) {
    auto read = [&](const char* key) { return read_dtype(json, version == 1 ? "states" : key, file); };
    return {read_dtype(json, "compute", file), read("gradients"), read("master"), read("moments")};
}

} // namespace

Plan parse_plan(const std::string& text, const std::string& file) {
    try {
        const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
        if (!json.is_object() || !json.contains("tutti_plan") || !json["tutti_plan"].is_number_integer())
            fail("{} is no plan: it is not a JSON object with the plan's version under \"tutti_plan\"", file);
        const int version = json.at("tutti_plan").get<int>();
        if (version < 1 || version > Plan::version)
            fail("{} is a plan of version {}; this program reads versions 1 to {}", file, version, Plan::version);
        Plan plan;
        plan.model = json.at("model").get<std::string>();
        plan.device = json.at("device").get<std::string>();
        const auto& workload = json.at("workload");
        plan.workload = {workload.at("sequence").get<std::int64_t>(), workload.at("global_batch").get<std::int64_t>(),
                         workload.at("micro_batch").get<std::int64_t>()};
        plan.precision = read_precision(json.at("precision"), version, file);
        plan.chunk_elements = json.at("chunk_elements").get<std::int64_t>();
        plan.split_backward = json.at("split_backward").get<bool>();
        if (json.contains("schedule")) plan.schedule = schedule_from_json(json.at("schedule"), file);
        check(plan);
        return plan;
    } catch (const nlohmann::json::exception& error) {
        fail("{} is no plan: {}", file, error.what());
    }
}

} // namespace tutti

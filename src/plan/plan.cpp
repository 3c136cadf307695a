#include "plan/plan.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

namespace tutti {

void check(const Plan& plan) {
    const Workload& w = plan.workload;
    if (w.sequence <= 0) fail("sequence is {}; it has to be at least 1", w.sequence);
    if (w.micro_batch <= 0) fail("micro_batch is {}; it has to be at least 1", w.micro_batch);
    if (w.global_batch <= 0) fail("global_batch is {}; it has to be at least 1", w.global_batch);
    if (w.global_batch % w.micro_batch != 0)
        fail("global_batch {} is not a multiple of micro_batch {}", w.global_batch, w.micro_batch);
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
    json["precision"] = {{"compute", name_of(plan.precision.compute)}, {"states", name_of(plan.precision.states)}};
    json["chunk_elements"] = plan.chunk_elements;
    json["split_backward"] = plan.split_backward;
    return json.dump(2) + "\n";
}

namespace {

DType read_dtype(const nlohmann::json& json, const char* key, const std::string& file) {
    const std::string name = json.at(key).get<std::string>();
    const auto dtype = parse_dtype(name);
    if (!dtype || !is_floating(*dtype)) fail("{}: {} is \"{}\", which is no floating type", file, key, name);
    return *dtype;
}

} // namespace

Plan parse_plan(const std::string& text, const std::string& file) {
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        if (const int version = json.at("tutti_plan").get<int>(); version != Plan::version)
            fail("{} is a plan of version {}; this program reads version {}", file, version, Plan::version);
        Plan plan;
        plan.model = json.at("model").get<std::string>();
        plan.device = json.at("device").get<std::string>();
        const auto& workload = json.at("workload");
        plan.workload = {workload.at("sequence").get<std::int64_t>(), workload.at("global_batch").get<std::int64_t>(),
                         workload.at("micro_batch").get<std::int64_t>()};
        const auto& precision = json.at("precision");
        plan.precision = {read_dtype(precision, "compute", file), read_dtype(precision, "states", file)};
        plan.chunk_elements = json.at("chunk_elements").get<std::int64_t>();
        plan.split_backward = json.at("split_backward").get<bool>();
        check(plan);
        return plan;
    } catch (const nlohmann::json::exception& error) {
        fail("{} is no plan: {}", file, error.what());
    }
}

} // namespace tutti

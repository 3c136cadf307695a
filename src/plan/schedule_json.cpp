#include "plan/schedule_json.h"

#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"
#include "schedule/check.h"
#include "schedule/families.h"

#include <array>
#include <limits>
#include <sstream>

namespace tutti {
namespace {

struct CostKey {
    const char* name;
    double schedule::StageCosts::*member;
};
constexpr std::array<CostKey, 9> cost_keys = {{{"forward", &schedule::StageCosts::forward},
                                               {"backward", &schedule::StageCosts::backward},
                                               {"weight_gradient", &schedule::StageCosts::weight_gradient},
                                               {"recompute", &schedule::StageCosts::recompute},
                                               {"activation", &schedule::StageCosts::activation},
                                               {"kept_after_backward", &schedule::StageCosts::kept_after_backward},
                                               {"boundary", &schedule::StageCosts::boundary},
                                               {"synchronise", &schedule::StageCosts::synchronise},
                                               {"update", &schedule::StageCosts::update}}};

nlohmann::ordered_json costs_to_json(const schedule::Costs& costs) {
    nlohmann::ordered_json json;
    json["communication"] = costs.communication;
    json["blocking"] = costs.blocking;
    for (const schedule::StageCosts& stage : costs.stages) {
        nlohmann::ordered_json entry;
        for (const CostKey& key : cost_keys) entry[key.name] = stage.*key.member;
        json["stages"].push_back(std::move(entry));
    }
    return json;
}

schedule::Costs read_costs(const formats::JsonObject& json) {
    schedule::Costs costs;
    costs.communication.clear();
    for (const nlohmann::json& cost : json.list("communication")) {
        if (!cost.is_number()) fail("{}: communication should be a list of numbers", json.where());
        costs.communication.push_back(cost.get<double>());
    }
    costs.blocking = json.boolean("blocking");
    costs.stages.clear();
    for (const nlohmann::json& entry : json.list("stages")) {
        const formats::JsonObject one(entry, json.where() + ": stages");
        schedule::StageCosts& stage = costs.stages.emplace_back();
        for (const CostKey& key : cost_keys) stage.*key.member = one.number(key.name);
        one.expect_no_others();
    }
    json.expect_no_others();
    return costs;
}

int read_int(const formats::JsonObject& json, std::string_view key) {
    const std::int64_t number = json.integer(key);
    if (number < -1 || number > std::numeric_limits<int>::max()) // -1: without limit
        fail("{}: {} is {}, which is no number from -1 to {}", json.where(), key, number,
             std::numeric_limits<int>::max());
    return static_cast<int>(number);
}

template <class Value>
Value read_name(const std::string& name, const char* what, const std::string& where) {
    Value value{};
    if (!schedule::parse(name, value)) fail("{}: {} {} is not known", where, what, formats::in_quotes(name));
    return value;
}

schedule::ScheduleParameters read_parameters(const formats::JsonObject& json) {
    schedule::ScheduleParameters p;
    p.family = json.string("family");
    p.ranks = read_int(json, "ranks");
    p.micro_batches = read_int(json, "micro_batches");
    p.stages_per_rank = read_int(json, "stages_per_rank");
    p.model_replicas = read_int(json, "copies");
    p.placement = read_name<schedule::StagePlacement>(json.string("placement"), "placement", json.where());
    p.in_flight = read_int(json, "in_flight");
    p.split_backward = json.boolean("split_backward");
    p.deferred_weight_gradients = read_int(json, "deferred_weight_gradients");
    p.group = read_int(json, "group");
    p.memory_cap = json.number("memory_cap");
    for (const nlohmann::json& one : json.list("recompute")) {
        if (!one.is_string()) fail("{}: recompute should be a list of names", json.where());
        p.recompute.push_back(read_name<schedule::Recompute>(one.get<std::string>(), "recompute", json.where()));
    }
    return p;
}

std::vector<std::string> read_orders(const formats::JsonObject& json) {
    std::vector<std::string> orders;
    for (const nlohmann::json& order : json.list("orders")) {
        if (!order.is_string()) fail("{}: orders should be a list of texts, one for each rank", json.where());
        orders.push_back(order.get<std::string>());
    }
    return orders;
}

schedule::ScheduleParameters resolve_exactly(const schedule::ScheduleParameters& p) {
    const schedule::ScheduleParameters resolved = schedule::resolve(p);
    if (p.in_flight > resolved.in_flight) // flags may ask for more than there are; a plan is exact
        fail("in_flight is {}, but {} and {} make at most {}", p.in_flight, counted(p.micro_batches, "micro-batch"),
             resolved.model_replicas == 1 ? "1 model replica"
                                          : fmt::format("{} model replicas", resolved.model_replicas),
             resolved.in_flight);
    return resolved;
}

std::string order_text(std::span<const schedule::ScheduledTask> tasks) {
    std::string text;
    for (const schedule::ScheduledTask& task : tasks) text += (text.empty() ? "" : " ") + schedule::to_string(task);
    return text;
}

} // namespace

nlohmann::ordered_json schedule_to_json(const PlannedSchedule& planned) {
    const schedule::ScheduleParameters& p = planned.schedule.parameters;
    nlohmann::ordered_json json;
    json["family"] = p.family;
    json["ranks"] = p.ranks;
    json["micro_batches"] = p.micro_batches;
    json["stages_per_rank"] = p.stages_per_rank;
    json["copies"] = p.model_replicas;
    json["placement"] = schedule::name_of(p.placement);
    json["in_flight"] = p.in_flight;
    json["split_backward"] = p.split_backward;
    json["deferred_weight_gradients"] = p.deferred_weight_gradients;
    json["group"] = p.group;
    json["memory_cap"] = p.memory_cap;
    json["recompute"] = nlohmann::json::array();
    for (const schedule::Recompute recompute : p.recompute) json["recompute"].push_back(schedule::name_of(recompute));
    for (int r = 0; r < planned.schedule.ranks(); ++r) json["orders"].push_back(order_text(planned.schedule.rank(r)));
    json["costs"] = costs_to_json(planned.costs);
    return json;
}

PlannedSchedule schedule_from_json(const nlohmann::json& value, const std::string& file) {
    const formats::JsonObject json(value, file + ": schedule");
    const schedule::ScheduleParameters parameters = read_parameters(json);
    const std::vector<std::string> orders = read_orders(json);
    PlannedSchedule planned;
    planned.costs = read_costs({json.object("costs").value(), json.where() + ": costs"});
    json.expect_no_others();
    schedule::Schedule& schedule = planned.schedule;
    try {
        schedule.parameters = resolve_exactly(parameters);
        schedule.first.push_back(0);
        for (const std::string& order : orders) {
            std::istringstream words(order);
            for (std::string word; words >> word;) schedule.tasks.push_back(schedule::parse_task(word));
            schedule.first.push_back(static_cast<std::int32_t>(schedule.tasks.size()));
        }
        schedule::check(planned.costs, schedule.parameters);
        schedule::check(schedule, planned.costs);
    } catch (const Error& error) {
        fail("{}: {}", json.where(), error.what());
    }
    return planned;
}

} // namespace tutti

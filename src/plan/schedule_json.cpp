#include "plan/schedule_json.h"

#include "base/counted.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/families.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <array>
#include <sstream>

namespace tutti {
namespace {

struct CostKey {
    const char* name;
    double StageCosts::*member;
};
constexpr std::array<CostKey, 9> cost_keys = {{{"forward", &StageCosts::forward},
                                               {"backward", &StageCosts::backward},
                                               {"weight_gradient", &StageCosts::weight_gradient},
                                               {"recompute", &StageCosts::recompute},
                                               {"activation", &StageCosts::activation},
                                               {"kept_after_backward", &StageCosts::kept_after_backward},
                                               {"boundary", &StageCosts::boundary},
                                               {"synchronise", &StageCosts::synchronise},
                                               {"update", &StageCosts::update}}};

nlohmann::ordered_json costs_to_json(const Costs& costs) {
    nlohmann::ordered_json json;
    json["communication"] = costs.communication;
    json["blocking"] = costs.blocking;
    for (const StageCosts& stage : costs.stages) {
        nlohmann::ordered_json entry;
        for (const CostKey& key : cost_keys) entry[key.name] = stage.*key.member;
        json["stages"].push_back(std::move(entry));
    }
    return json;
}

Costs costs_from_json(const nlohmann::json& json) {
    Costs costs;
    costs.communication = json.at("communication").get<std::vector<double>>();
    costs.blocking = json.at("blocking").get<bool>();
    for (const auto& entry : json.at("stages")) {
        StageCosts& stage = costs.stages.emplace_back();
        for (const CostKey& key : cost_keys) stage.*key.member = entry.at(key.name).get<double>();
    }
    return costs;
}

int read_int(const nlohmann::json& json, const char* key) {
    const auto& value = json.at(key);
    const auto number = value.is_number_integer() ? value.get<std::int64_t>() : -2;
    if (number < -1 || number > std::numeric_limits<int>::max()) // -1: without limit
        fail("{} is {}, which is no number from -1 to {}", key, value.dump(), std::numeric_limits<int>::max());
    return static_cast<int>(number);
}

template <class Value>
Value read_name(const nlohmann::json& json, const char* what) {
    Value value{};
    const auto name = json.get<std::string>();
    if (!parse(name, value)) fail("{} \"{}\" is not known", what, name);
    return value;
}

ScheduleParameters parameters_from_json(const nlohmann::json& json) {
    ScheduleParameters p;
    p.family = json.at("family").get<std::string>();
    p.ranks = read_int(json, "ranks");
    p.micro_batches = read_int(json, "micro_batches");
    p.stages_per_rank = read_int(json, "stages_per_rank");
    p.copies = read_int(json, "copies");
    p.placement = read_name<StagePlacement>(json.at("placement"), "placement");
    p.in_flight = read_int(json, "in_flight");
    p.split_backward = json.at("split_backward").get<bool>();
    p.deferred_weight_gradients = read_int(json, "deferred_weight_gradients");
    p.group = read_int(json, "group");
    p.memory_cap = json.at("memory_cap").get<double>();
    for (const auto& entry : json.at("recompute")) p.recompute.push_back(read_name<Recompute>(entry, "recompute"));
    const ScheduleParameters resolved = resolve(p);
    if (p.in_flight > resolved.in_flight) // flags may ask for more than there are; a plan is exact
        fail("in_flight is {}, but {} and {} make at most {}", p.in_flight, counted(p.micro_batches, "micro-batch"),
             resolved.copies == 1 ? "1 copy" : fmt::format("{} copies", resolved.copies), resolved.in_flight);
    return resolved;
}

std::string order_text(std::span<const ScheduledTask> tasks) {
    std::string text;
    for (const ScheduledTask& task : tasks) text += (text.empty() ? "" : " ") + to_string(task);
    return text;
}

} // namespace

nlohmann::ordered_json schedule_to_json(const PlannedSchedule& planned) {
    const ScheduleParameters& p = planned.schedule.parameters;
    nlohmann::ordered_json json;
    json["family"] = p.family;
    json["ranks"] = p.ranks;
    json["micro_batches"] = p.micro_batches;
    json["stages_per_rank"] = p.stages_per_rank;
    json["copies"] = p.copies;
    json["placement"] = name_of(p.placement);
    json["in_flight"] = p.in_flight;
    json["split_backward"] = p.split_backward;
    json["deferred_weight_gradients"] = p.deferred_weight_gradients;
    json["group"] = p.group;
    json["memory_cap"] = p.memory_cap;
    json["recompute"] = nlohmann::json::array();
    for (const Recompute recompute : p.recompute) json["recompute"].push_back(name_of(recompute));
    for (int r = 0; r < planned.schedule.ranks(); ++r) json["orders"].push_back(order_text(planned.schedule.rank(r)));
    json["costs"] = costs_to_json(planned.costs);
    return json;
}

PlannedSchedule schedule_from_json(const nlohmann::json& json, const std::string& file) {
    try {
        PlannedSchedule planned{{parameters_from_json(json)}, costs_from_json(json.at("costs"))};
        Schedule& schedule = planned.schedule;
        schedule.first.push_back(0);
        for (const auto& order : json.at("orders")) {
            std::istringstream words(order.get<std::string>());
            for (std::string word; words >> word;) schedule.tasks.push_back(parse_task(word));
            schedule.first.push_back(static_cast<std::int32_t>(schedule.tasks.size()));
        }
        check(planned.costs, schedule.parameters);
        check(schedule, planned.costs);
        return planned;
    } catch (const Error& error) {
        fail("{}: schedule: {}", file, error.what());
    } catch (const nlohmann::json::exception& error) {
        fail("{}: schedule: {}", file, error.what());
    }
}

} // namespace tutti

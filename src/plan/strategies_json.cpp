#include "plan/strategies_json.h"

#include "base/checked.h"
#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

std::vector<int> read_axes(const formats::JsonObject& json) {
    std::vector<int> axes;
    for (const nlohmann::json& size : json.list("axes")) {
        if (!size.is_number_integer()) fail("{}: axes should be a list of integers", json.where());
        axes.push_back(size.is_number_unsigned() && size.get<std::uint64_t>() > INT64_MAX
                           ? std::numeric_limits<int>::max()
                           : clamp_to_int(size.get<std::int64_t>()));
    }
    return axes;
}

sharding::OperatorStrategy read_operator(const formats::JsonObject& json) {
    sharding::OperatorStrategy choice;
    choice.name = {json.string("source"), json.string("operator"),
                   clamp_to_int(json.find_integer("ordinal").value_or(0))};
    for (const nlohmann::json& word : json.list("split")) {
        if (!word.is_string()) fail("{}: split should be a list of loops' names", json.where());
        choice.split.push_back(word.get<std::string>());
    }
    choice.keep_gathered = json.find_boolean("keep_gathered").value_or(false);
    choice.reduce_at_once = json.find_boolean("reduce_at_once").value_or(false);
    json.expect_no_others();
    return choice;
}

sharding::TensorStrategy read_tensor(const formats::JsonObject& json) {
    sharding::TensorStrategy choice;
    choice.name = json.string("name");
    for (const nlohmann::json& one : json.list("held")) {
        if (!one.is_boolean()) fail("{}: held should be a list of true and false", json.where());
        choice.sharded.push_back(one.get<bool>());
    }
    json.expect_no_others();
    return choice;
}

} // namespace

nlohmann::ordered_json strategies_to_json(const sharding::OperatorStrategies& strategies) {
    nlohmann::ordered_json json = {{"axes", strategies.axes},
                                   {"operators", nlohmann::ordered_json::array()},
                                   {"tensors", nlohmann::ordered_json::array()}};
    for (const sharding::OperatorStrategy& choice : strategies.operators) {
        nlohmann::ordered_json one = {{"source", choice.name.source}, {"operator", choice.name.op}};
        if (choice.name.ordinal != 0) one["ordinal"] = choice.name.ordinal;
        one["split"] = choice.split;
        if (choice.keep_gathered) one["keep_gathered"] = true;
        if (choice.reduce_at_once) one["reduce_at_once"] = true;
        json["operators"].push_back(std::move(one));
    }
    for (const sharding::TensorStrategy& choice : strategies.tensors)
        json["tensors"].push_back({{"name", choice.name}, {"held", choice.sharded}});
    return json;
}

sharding::OperatorStrategies strategies_from_json(const nlohmann::json& value, const std::string& file) {
    const formats::JsonObject json(value, file + ": strategies");
    sharding::OperatorStrategies strategies{.axes = read_axes(json)};
    for (const nlohmann::json& one : json.list("operators"))
        strategies.operators.push_back(read_operator({one, json.where() + ": operators"}));
    for (const nlohmann::json& one : json.list("tensors"))
        strategies.tensors.push_back(read_tensor({one, json.where() + ": tensors"}));
    json.expect_no_others();
    return strategies;
}

} // namespace tutti

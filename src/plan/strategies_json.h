// The strategies section of a plan file.
#pragma once

#include "sharding/operator_strategies.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tutti {

nlohmann::ordered_json strategies_to_json(const sharding::OperatorStrategies& strategies);
// Error naming the file and the place. Whether they fit a mesh or a model is for `check`.
sharding::OperatorStrategies strategies_from_json(const nlohmann::json& json, const std::string& file);

} // namespace tutti

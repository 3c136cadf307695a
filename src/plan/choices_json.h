// The strategies section of a plan file.
#pragma once

#include "sharding/choices.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tutti {

nlohmann::ordered_json choices_to_json(const sharding::Choices& choices);
// Error naming the file and the place. Whether they fit a mesh or a model is for `check`.
sharding::Choices choices_from_json(const nlohmann::json& json, const std::string& file);

} // namespace tutti

// The same model with fewer or more layers.
#pragma once

#include "models/model.h"

namespace tutti::models {

std::int64_t layers_of(const ModelSource& source); // 0 where its config does not say

// What the config says layer by layer is cut, or goes on as it began.
ModelSource with_layers(const ModelSource& source, std::int64_t layers);

} // namespace tutti::models

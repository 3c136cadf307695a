// Sampling from a model, to see that training worked.
#pragma once

#include "base/dtype.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::train {

struct GenerateConfig {
    std::string model; // folder or built-in name
    std::vector<std::int64_t> prompt;
    std::int64_t tokens = 200;
    double temperature = 0.8; // 0: the most likely token
    std::int64_t top_k = 0;   // 0: all
    std::uint64_t seed = 0;
    std::int64_t sequence = 0; // longest context; 0: the model's own, at most 1024
    DType dtype = DType::float32;
    int threads = 0;
};

// Calls `emit` with each new token as it is drawn; stops early if it returns false. Causal models only.
void generate(const GenerateConfig& config, const std::function<bool(std::int64_t token)>& emit);

} // namespace tutti::train

// The operators of a training step with the shapes that models give them.
#pragma once

#include "base/tensor_type.h"
#include "graph/attributes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct BenchTensor {
    TensorType type;
    std::int64_t below = 0; // ids: 0 .. below - 1
    bool positive = false;
};

struct BenchOperator {
    std::string model, op, what; // "gpt2", "linear", "768 -> 3072"
    std::vector<BenchTensor> inputs = {};
    Attributes attributes = {};
    std::vector<BenchTensor> outputs = {}; // where they cannot be inferred: those that are updated
};

// GPT-2 124M at 1024 tokens a sample, and a layer of a Llama of 1.1 billion parameters at 2048, in bf16. `batch`:
// samples of GPT-2; Llama gets a quarter, so half as many tokens.
std::vector<BenchOperator> model_operators(std::int64_t batch);

} // namespace tutti

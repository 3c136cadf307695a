// Attention of bf16 in tiles on tensor cores: the kernels that could serve a request, for the choice among them.
#pragma once

#include "backend/cuda/cuda.h"

#include <memory>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

struct AttentionCandidate {
    std::string name; // the same in every run
    std::shared_ptr<const Kernel> kernel;
};

// Of attention or its gradient: one for each shape of tiles that fits into the GPU's shared memory, that for large GPUs
// first. None for float32.
std::vector<AttentionCandidate> tiled_attention(const KernelRequest& request, const Gpu& gpu);

} // namespace tutti::backend::cuda

// Own attention, for what cuDNN does not do: float32, any head size up to 256, masks, and dropout by the streams of
// random_stream.h.
#pragma once

#include "backend/cuda/cuda.h"

#include <memory>

namespace tutti::backend::cuda {

std::unique_ptr<Kernel> make_own_attention(const KernelRequest& request, const Gpu& gpu);
std::unique_ptr<Kernel> make_own_attention_gradient(const KernelRequest& request, const Gpu& gpu);

} // namespace tutti::backend::cuda

// Fused attention and its gradient as graphs of cuDNN's operations, which it knows as a whole.
#pragma once

#include "backend/cuda/cudnn.h"
#include "backend/device.h"

#include <memory>
#include <vector>

namespace tutti::backend::cuda {

// Kernels for bfloat16 without mask and dropout, whose sums have a fixed order. CudnnError saying why where these
// operands are not for cuDNN. Pointers have to be aligned to 16 bytes.
std::vector<std::unique_ptr<Kernel>> make_cudnn_attention(std::shared_ptr<const Cudnn> cudnn,
                                                          const KernelRequest& request);

// Whether cuDNN could serve the request, as far as the request tells: "" or why not. Does not need the library.
std::string cudnn_attention_lacks(const KernelRequest& request);

// The engine that runs such a kernel, in words.
std::string engine_of(const Kernel& kernel);

} // namespace tutti::backend::cuda

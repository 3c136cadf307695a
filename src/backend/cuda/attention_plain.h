// Attention in float32 without tensor cores, and the gradient of a learned bias in any type: correct, and slow.
#pragma once

#include "backend/cuda/attention_call.h"
#include "backend/cuda/cuda.h"

#include <memory>

namespace tutti::backend::cuda {

// Of float32.
std::unique_ptr<Kernel> make_plain_attention(const KernelRequest& request, const Gpu& gpu);
std::unique_ptr<Kernel> make_plain_attention_gradient(const KernelRequest& request, const Gpu& gpu);

// The gradient of the bias of a request for attention_gradient, of float32 or bf16: the scores are computed once more,
// so that nothing of their size is kept but the result.
class BiasGradient {
  public:
    virtual ~BiasGradient() = default;
    // `call` is that of the launch.
    virtual void run(const AttentionCall& call, const Launch& launch) const = 0;
};
std::unique_ptr<BiasGradient> make_bias_gradient(const KernelRequest& request, const Gpu& gpu);

} // namespace tutti::backend::cuda

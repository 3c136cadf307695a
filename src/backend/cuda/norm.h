// The parts that the norms' kernels have in common.
#pragma once

#include "backend/cuda/cuda.h"

#include <memory>
#include <string>

namespace tutti::backend::cuda {

// layer_norm takes the mean away first, rms_norm does not.
inline bool is_centred(const KernelRequest& request) { return request.op.find("layer_norm") != std::string::npos; }
inline float scale_offset(const KernelRequest& request) { return request.attributes.flag("unit_offset") ? 1.0f : 0.0f; }

// (dy, x [, mean], rstd [, scale [, residual]]) -> dx
std::unique_ptr<Kernel> make_norm_input_gradient(const KernelRequest& request);
// (dy, x [, mean], rstd, ...) -> dscale [, dshift]
std::unique_ptr<Kernel> make_norm_weight_gradient(const KernelRequest& request, const Gpu& gpu);
// Both in one pass; norm_gradient.cu.
void add_norm_gradient_kernels(KernelTable& table, const Gpu& gpu);

} // namespace tutti::backend::cuda

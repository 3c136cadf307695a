// A GPU that is planned for and need not be here: it says how much memory it has and what the CUDA backend's kernels
// take of it beside their operands, so that the memory table of a run is the same as on the GPU. It computes nothing.
#pragma once

#include "backend/device.h"

#include <memory>
#include <string>

namespace tutti::backend {

std::unique_ptr<Device> make_absent_gpu(const std::string& model, Bytes memory);

} // namespace tutti::backend

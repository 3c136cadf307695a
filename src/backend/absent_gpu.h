// AbsentGpu: a GPU that a run is planned for and that need not be in this machine. It knows its memory and the
// workspaces of the CUDA backend's kernels, so that the memory table of a run is the same as on the GPU. It computes
// nothing.
#pragma once

#include "backend/device.h"

#include <memory>
#include <string>

namespace tutti::backend {

std::unique_ptr<Device> make_absent_gpu(const std::string& model, Bytes memory);

} // namespace tutti::backend

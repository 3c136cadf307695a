// The devices that a run can be on. A device is one line of the table in devices.cpp and a folder of backend/.
#pragma once

#include "backend/device.h"

#include <memory>
#include <string>

namespace tutti::devices {

// Error naming those that there are where there is no such device. `local_rank`: the ranks of a machine share its GPUs
// out among them.
std::unique_ptr<backend::Device> open_device(const std::string& name, int threads, int local_rank = 0);

// Error where it does not compute in this type.
void check_computes(const backend::Device& device, DType dtype);

// What a fused head may take for logits, at most; less where that does not fit.
Bytes head_logits_of(const backend::Device& device);

} // namespace tutti::devices

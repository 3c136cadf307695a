// The reference backend: naive kernels for every operator and element type, computed in double. It is the oracle that
// the other backends are compared with, written to be obviously right, not fast.
#pragma once

#include "backend/device.h"

#include <memory>

namespace tutti::backend::reference {

std::unique_ptr<Device> make_reference_device();

} // namespace tutti::backend::reference

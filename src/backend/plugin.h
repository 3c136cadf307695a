// Backends that need libraries not every machine has are plug-ins: shared libraries next to the program, opened when
// their device is asked for.
#pragma once

#include "backend/device.h"

#include <memory>
#include <string>

namespace tutti::backend {

// Error saying in one sentence what is missing: the plug-in (not built), a library of it, or the hardware.
// Where a machine has several such devices, its ranks get them in turn.
std::unique_ptr<Device> open_plugin_device(const std::string& name, int local_rank = 0);

} // namespace tutti::backend

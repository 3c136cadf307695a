// The kernel of an instruction.
#pragma once

#include "backend/device.h"
#include "program/program.h"

namespace tutti {

std::unique_ptr<Kernel> prepare(const Device& device, const Instruction& instruction, bool accumulate);

} // namespace tutti

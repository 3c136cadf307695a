// The kernel of an instruction.
#pragma once

#include "backend/device.h"
#include "program/program.h"

namespace tutti::runtime {

std::unique_ptr<backend::Kernel> prepare(const backend::Device& device, const Instruction& instruction,
                                         bool accumulate);

} // namespace tutti::runtime

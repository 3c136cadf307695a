// The memory of a small program without model data, on the reference device.
#pragma once

#include "backend/reference/reference.h"
#include "runtime/program_memory.h"

#include <memory>

namespace tutti::test {

struct BoundMemory {
    explicit BoundMemory(const Program& program, Bytes workspace = {})
        : memory(program, workspace), data(*device, program, {}, nullptr),
          scratch(device->allocate(memory.buffers() + memory.workspace_size())) {
        memory.bind(data, scratch->data());
    }

    std::unique_ptr<backend::Device> device = backend::reference::make_reference_device();
    runtime::ProgramMemory memory;
    offload::ModelData data;
    std::unique_ptr<backend::Arena> scratch;
};

} // namespace tutti::test

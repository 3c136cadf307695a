// How the stand-in of NCCL works in a stream and reaches the device's memory: over the stand-in device's queues, or
// over CUDA's.
#pragma once

#include "comm/nccl/nccl_calls.h"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace tutti::test {

class DeviceCopies {
  public:
    virtual ~DeviceCopies() = default;
    virtual std::vector<std::byte> read(const void* from, std::size_t bytes) = 0;
    virtual void write(void* to, std::span<const std::byte> from) = 0;
};

// Done when the stream has come to it; the stream goes on when it is done. It may wait for other ranks.
void give(comm::nccl::Stream stream, std::function<void(DeviceCopies&)> work);

} // namespace tutti::test

// HostDevice: the base of devices whose memory is the host's: arenas, copies, and a queue that does its work at once.
#pragma once

#include "backend/device.h"

namespace tutti::backend {

class HostDevice : public Device {
  public:
    std::unique_ptr<Queue> make_queue() const override;
    std::unique_ptr<Queue> make_copy_queue() const override;
    std::unique_ptr<Arena> allocate(Bytes size) const override;
    std::unique_ptr<Arena> allocate_staging(Bytes size) const override;
    void copy_in(std::byte* to, std::span<const std::byte> from) const override;
    void copy_out(std::span<std::byte> to, const std::byte* from) const override;
    void synchronize() const override {} // kernels have run when `run` returns
};

} // namespace tutti::backend

// A communication that devices make by themselves, without the host waiting. The link's queue waits for the kernels
// that wrote the operands, and the kernels' queue waits for the result where it is needed.
#pragma once

#include "runtime/communication.h"
#include "runtime/device_links.h"

namespace tutti::runtime {

class DeviceCommunication final : public Communication {
  public:
    DeviceCommunication(const Instruction& instruction, DeviceLink& link);

    void start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               backend::Queue& queue) override;
    void finish() override;
    bool under_way() const override { return done_ != nullptr; }

  private:
    void give(const std::byte* in, std::byte* out, std::byte* packing);

    DeviceLink* link_;
    CommunicationLayout layout_;
    backend::Queue* kernels_ = nullptr;
    DeviceLink::Moment done_;
};

} // namespace tutti::runtime

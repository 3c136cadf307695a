// An exchange that devices make by themselves: on the host nothing waits. The link's queue waits for what kernels
// wrote, and whoever needs the result has the kernels' queue wait for it.
#pragma once

#include "runtime/device_links.h"
#include "runtime/exchange.h"

namespace tutti::runtime {

class DeviceExchange final : public Exchange {
  public:
    DeviceExchange(const Instruction& instruction, DeviceLink& link);

    void start(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               backend::Queue& queue) override;
    void finish() override;
    bool under_way() const override { return done_ != nullptr; }

  private:
    void give(const std::byte* in, std::byte* out, std::byte* packing);

    DeviceLink* link_;
    ExchangeLayout layout_;
    backend::Queue* kernels_ = nullptr;
    DeviceLink::Moment done_;
};

} // namespace tutti::runtime

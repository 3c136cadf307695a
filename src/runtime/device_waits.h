// DeviceWaits: how the host waits for work that it gave to a device's queue. If devices communicate through links, the
// waiting host watches the links, too: a lost rank ends the wait with an error.
#pragma once

#include "backend/device.h"
#include "runtime/device_links.h"

#include <cstdint>
#include <memory>

namespace tutti::runtime {

class DeviceWaits {
  public:
    DeviceWaits(backend::Queue& queue, DeviceLinks* links) : queue_(queue), links_(links) {}

    void wait(const backend::Event& event);
    void drain() { wait(*queue_.mark()); } // until the queue has done all that it was given
    // Called for every instruction that is given to the queue: keeps the host fewer of them ahead than a driver takes.
    void keep_pace();

    static constexpr std::int64_t pace = 128; // instructions; the host is at most two such stretches ahead

  private:
    backend::Queue& queue_;
    DeviceLinks* links_; // null: nothing to watch over
    std::int64_t given_ = 0;
    std::shared_ptr<const backend::Event> last_; // at the end of the stretch before
};

} // namespace tutti::runtime

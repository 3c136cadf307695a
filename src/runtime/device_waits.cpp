#include "runtime/device_waits.h"

namespace tutti::runtime {

void DeviceWaits::wait(const backend::Event& event) {
    if (links_ != nullptr)
        links_->wait(event);
    else
        event.synchronize();
}

// A driver takes about a thousand pieces of work and then blocks whoever gives it more. Where the device waits for a
// rank that has died, that would be for ever, and nobody would watch over the links.
void DeviceWaits::keep_pace() {
    if (links_ == nullptr || ++given_ % pace != 0) return;
    if (last_) wait(*last_);
    last_ = queue_.mark();
}

} // namespace tutti::runtime

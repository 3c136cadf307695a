#include "backend/plugin.h"

#include "base/plugin.h"

namespace tutti::backend {

std::unique_ptr<Device> open_plugin_device(const std::string& name, int local_rank) {
    const std::string device = "device " + name;
    using Open = Device*(int local_rank);
    auto* open = reinterpret_cast<Open*>(
        open_plugin({name, device, "the " + device, "the toolkit is installed"}, "tutti_open_device"));
    return std::unique_ptr<Device>(open(local_rank));
}

} // namespace tutti::backend

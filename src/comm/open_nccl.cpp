#include "base/plugin.h"
#include "comm/device_group.h"

namespace tutti::comm {

std::unique_ptr<DeviceNetwork> open_nccl() {
    using Open = DeviceNetwork*();
    auto* open =
        reinterpret_cast<Open*>(open_plugin({"nccl", "NCCL", "NCCL", "all of Tutti is"}, "tutti_open_device_network"));
    return std::unique_ptr<DeviceNetwork>(open());
}

} // namespace tutti::comm

#include "runtime/communication_pool.h"

#include "runtime/device_communication.h"

#include <algorithm>

namespace tutti::runtime {

Communication& CommunicationPool::free_one(const Instruction& instruction, const backend::Device& device, Route route) {
    const auto free = std::ranges::find_if(made_, [](const auto& each) { return !each->under_way(); });
    if (free != made_.end()) return **free;
    if (route == Route::links)
        made_.push_back(std::make_unique<DeviceCommunication>(instruction, *link_));
    else
        made_.push_back(std::make_unique<HostCommunication>(instruction, *group_, device));
    return *made_.back();
}

} // namespace tutti::runtime

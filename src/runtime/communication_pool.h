// CommunicationPool: the Communication objects of one instruction. There are as many as were ever under way at once;
// every step reuses them.
#pragma once

#include "runtime/communication.h"
#include "runtime/device_links.h"

#include <memory>
#include <vector>

namespace tutti::runtime {

// How a rank communicates: by way of the host, or over the links that devices have.
enum class Route : std::uint8_t { host, links };

class CommunicationPool {
  public:
    CommunicationPool() = default; // of an instruction that does not communicate
    CommunicationPool(comm::Group& group, DeviceLink* link) : group_(&group), link_(link) {}

    // One that is not under way. `device`: whose memory the host copies from and to.
    Communication& free_one(const Instruction& instruction, const backend::Device& device, Route route);
    void clear() { made_.clear(); } // none is under way

  private:
    comm::Group* group_ = nullptr;
    DeviceLink* link_ = nullptr; // null: by way of the host
    std::vector<std::unique_ptr<Communication>> made_;
};

} // namespace tutti::runtime

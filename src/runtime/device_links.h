// DeviceLinks: communication between the devices of a program's ranks (NCCL), without the host. Every group of ranks,
// and every direction from one rank to another, is a link with a queue of its own, so that none holds up another: two
// ranks may send to each other at once. The host waits only for the end of a step, and watches all links while it
// waits.
#pragma once

#include "backend/device.h"
#include "comm/device_group.h"
#include "runtime/group_table.h"

#include <deque>
#include <functional>
#include <map>
#include <tuple>

namespace tutti::runtime {

class DeviceLink {
  public:
    DeviceLink(std::unique_ptr<comm::DeviceGroup> group, std::unique_ptr<backend::Queue> queue)
        : group_(std::move(group)), queue_(std::move(queue)) {}

    comm::DeviceGroup& group() const { return *group_; }
    backend::Queue& queue() const { return *queue_; }

    using Moment = std::shared_ptr<const backend::Event>;
    // An operation was given to the queue that may begin when `ready` has come: the moment when it is done.
    Moment mark(Moment ready);
    // Another while has passed. WorldError where the connection is broken, or an operation has taken too long.
    void watch(Seconds passed, Seconds timeout);

  private:
    struct UnderWay {
        comm::DeviceOperation operation;
        Moment ready, done;
    };
    void forget_finished();

    std::unique_ptr<comm::DeviceGroup> group_;
    std::unique_ptr<backend::Queue> queue_;
    std::deque<UnderWay> under_way_; // done in this order
    Seconds waited_;                 // for the first of them
};

class DeviceLinks {
  public:
    DeviceLinks(GroupTable& groups, const backend::Device& device, std::unique_ptr<comm::DeviceNetwork> network)
        : groups_(groups), device_(device), network_(std::move(network)) {}
    ~DeviceLinks();

    // Makes the links that a program needs. All ranks of the world do so at the same time.
    void connect(const Program& program);
    // The one that a communication with others goes through.
    DeviceLink& at(const Program& program, const Instruction& instruction);

    void meet(); // returns when all ranks have come
    // Waits, on the host. WorldError where an operation does not end within the world's timeout, a connection breaks,
    // or another rank fails; what is under way has been given up then.
    void wait(const backend::Event& event);
    void abandon() noexcept;

  private:
    // Its channel, whether it is for messages, and its ranks of the world. All ranks make their links in this order.
    using Key = std::tuple<int, bool, std::vector<int>>;
    Key key_of(const GroupSpec& spec, const Instruction& instruction);
    DeviceLink make(const GroupSpec& spec, const Key& key);
    void watch(Seconds passed);

    GroupTable& groups_;
    const backend::Device& device_;
    std::unique_ptr<comm::DeviceNetwork> network_;
    std::map<Key, DeviceLink> links_;
};

// Links of all ranks' devices, where each rank has one of its own; null where ranks share one or compute in host
// memory, and then data passes through that. `warn` is told in a sentence where something is missing for it.
std::unique_ptr<DeviceLinks> link_devices(GroupTable& groups, const backend::Device& device,
                                          const std::function<void(const std::string&)>& warn);

} // namespace tutti::runtime

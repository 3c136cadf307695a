// Transport: how the engine of one rank reaches the others: messages between two ranks, and beside them small control
// messages that no message can hold up. Only the engine's thread calls it, except for wake().
#pragma once

#include "base/units.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::comm {

class Operation;

using Clock = std::chrono::steady_clock;

// Messages from one rank to another with one tag arrive in the order they were sent. Tags have 28 bits: every MPI has.
using Tag = std::int32_t;

// Which message of an operation: handed back when it is done.
struct Part {
    enum class Way : std::uint8_t { sent, received };
    Way way;
    std::uint8_t phase = 0;
    int peer = 0; // within the group
    int piece = 0;
};

struct Receipt {
    Operation* operation = nullptr;
    Part part;
};

struct ControlMessage {
    int from = 0;
    std::vector<std::byte> content;
};

class Transport {
  public:
    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual bool shares_process() const = 0; // with the other ranks
    // What messages within a group of so many ranks take of this process, beside their buffers.
    virtual Bytes room_of_group(int) const { return {}; }

    // The buffer belongs to the transport until the receipt comes back from poll(). Never blocks.
    virtual void send(int to, Tag tag, std::span<const std::byte> data, const Receipt& receipt) = 0;
    virtual void receive(int from, Tag tag, std::span<std::byte> data, const Receipt& receipt) = 0;
    // Appends the receipts of messages that are done. WorldError where the connection to a rank is lost.
    virtual void poll(std::vector<Receipt>& done) = 0;

    // Control messages keep their content themselves and arrive in order.
    virtual void send_control(int to, std::vector<std::byte> content) = 0;
    virtual std::optional<ControlMessage> receive_control() = 0;

    // Returns when something may have happened, when woken, or at `until`.
    virtual void wait(Clock::time_point until) = 0;
    virtual void wake() = 0;

    // The run has failed: messages under way are given up, and their buffers not touched again. Control messages go on.
    virtual void abandon() = 0;
    // Ends the connection. together: all ranks end now. Otherwise control messages that are still under way get a
    // moment to leave, and no other rank is waited for.
    virtual void close(bool together) = 0;
    // Whether close(true) needs every rank: then ranks take leave of each other first.
    virtual bool closes_together() const = 0;
};

} // namespace tutti::comm

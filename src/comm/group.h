// Group: ranks that communicate (a process group). An operation starts at once and runs beside the caller's
// computation; the caller waits for its ticket. Results do not depend on timing or on how ranks are connected: sums are
// formed in rank order, in float32 or wider, and are the same bits on every rank.
//
// All ranks of a group start the same operations in the same order; messages between two ranks arrive in the order they
// were sent. Buffers belong to an operation from its start until its ticket has been waited for, or until the group has
// ended: a group that ends with operations under way gives them up. So let it end before its buffers do.
#pragma once

#include "base/combine.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/units.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::comm {

using Ticket = std::int64_t; // of one group; 0: nothing to wait for

class Group {
  public:
    virtual ~Group() = default;
    virtual const std::string& name() const = 0; // for people: "tensor", "data of stage 2"
    virtual int rank() const = 0;                // of the caller, within the group
    virtual int size() const = 0;

    virtual Ticket all_reduce(std::span<std::byte> data, DType dtype, Combine combine) = 0;
    // counts: bytes of every rank, laid one behind the other in `all`.
    virtual Ticket all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                              std::span<const std::int64_t> counts) = 0;
    virtual Ticket reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine,
                                  std::span<const std::int64_t> counts, DType dtype, Combine combine) = 0;
    // Bytes for and from every rank, laid one behind the other.
    virtual Ticket all_to_all(std::span<const std::byte> out, std::span<const std::int64_t> out_counts,
                              std::span<std::byte> in, std::span<const std::int64_t> in_counts) = 0;
    virtual Ticket broadcast(std::span<std::byte> data, int root) = 0;
    virtual Ticket send(std::span<const std::byte> data, int to) = 0;
    virtual Ticket receive(std::span<std::byte> data, int from) = 0;

    // Whether wait() would return, or throw, at once.
    virtual bool done(Ticket ticket) = 0;
    // Returns when the operation is done here. WorldError where a rank is lost, an operation does not end within the
    // timeout, or another rank has failed; the sentence names the culprit.
    virtual void wait(Ticket ticket) = 0;
};

// Why a run ended early, and with which exit status.
struct Failure {
    std::string sentence;
    int status = status_world;
    int teller = -1; // the rank that told the others of it
    bool operator==(const Failure&) const = default;
};

// An operation that is finished on this rank: for traces.
struct OperationRecord {
    std::string group, operation;
    std::int64_t sequence = 0; // among the collectives of the group, or the messages to or from one rank, from 1
    Bytes bytes;
    int peer = -1;      // of a message, within the group
    Seconds begin, end; // of the steady clock
};

// How long an operation may take before ranks that did not arrive are named and the run ends.
constexpr Seconds default_timeout{600};

// All ranks of a run. It outlives its groups.
class World {
  public:
    virtual ~World() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual Seconds timeout() const = 0;     // of an operation
    virtual bool shares_process() const = 0; // with the other ranks, which are threads
    // Memory that a group of so many ranks takes of this process, once it has communicated something large.
    virtual Bytes room_of_group(int) const { return {}; }
    virtual Group& all() = 0;
    // A group of these ranks of the world, this one among them, in this order. Made by each member on its own, without
    // communication; `channel`, above 0, tells apart groups that share two ranks.
    virtual std::unique_ptr<Group> group(std::string name, std::vector<int> members, int channel) = 0;

    // Ends this rank in failure. All others fail with the same sentence, whatever they are waiting for.
    virtual void fail(const std::string& sentence, int status) noexcept = 0;
    // Complains of an operation between ranks that does not end and that groups do not know. Ranks that do not answer
    // are named, and the run ends on all ranks with one sentence; returns when it has.
    virtual void complain(const std::string& complaint) noexcept = 0;
    // What waits throw, once this rank or another has failed.
    virtual std::optional<Failure> failure() = 0;

    // Called with every operation when it is finished, by another thread than the caller's. Set before the first one.
    virtual void observe(std::function<void(const OperationRecord&)> observer) = 0;
};

// How long a rank that others wait for may give no sign of life: it computes as long as it likes, and still answers.
constexpr Seconds default_silence{30};

std::unique_ptr<World> make_single_world(); // one rank; every operation is done when it starts

} // namespace tutti::comm

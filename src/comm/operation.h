// Operation: a collective or message of a group, as a small state machine. It posts its first messages when it starts,
// continues whenever one of them is done, and is finished when none is under way. The engine's thread runs it.
#pragma once

#include "base/combine.h"
#include "base/dtype.h"
#include "comm/transport.h"

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::comm {

// Memory of reductions that have ended, for those that come; by its size. The engine's thread alone touches it.
using Rooms = std::map<std::int64_t, std::vector<std::unique_ptr<std::byte[]>>>;

// One group on one rank, as far as operations and faults need it. The engine guards the counters.
struct GroupState {
    std::string name;
    std::vector<int> members; // ranks of the world
    int rank = 0;             // of this one, within the group
    int channel = 0;

    std::int64_t collectives = 0;              // operations started so far
    std::vector<std::int64_t> sends, receives; // messages started so far, by member
    std::shared_ptr<Rooms> rooms;              // of the engine

    int size() const { return static_cast<int>(members.size()); }
};

enum class OperationKind : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    send,
    receive
};
const char* name_of(OperationKind kind);

class Operation {
  public:
    Operation(std::shared_ptr<GroupState> group, OperationKind kind, std::int64_t bytes, int peer = -1)
        : group_(std::move(group)), kind_(kind), bytes_(bytes), peer_(peer) {}
    virtual ~Operation() = default;

    const GroupState& group() const { return *group_; }
    GroupState& group() { return *group_; }
    OperationKind kind() const { return kind_; }
    std::int64_t bytes() const { return bytes_; }
    virtual Bytes room() const { return {}; } // that it takes of its group's, while it is under way
    bool reduces() const { return kind_ == OperationKind::all_reduce || kind_ == OperationKind::reduce_scatter; }
    int peer() const { return peer_; } // of send and receive, within the group
    std::int64_t sequence() const { return sequence_; }
    Clock::time_point started() const { return started_; }
    Clock::time_point deadline() const { return deadline_; }
    void postpone(Clock::duration time) { deadline_ += time; }

    // Its place among the collectives of the group, or among the messages to or from the peer, counting from 1.
    void enqueue(std::int64_t sequence, Clock::time_point now, Clock::duration timeout) {
        sequence_ = sequence;
        started_ = now;
        deadline_ = now + timeout;
    }
    // Both return whether the operation is finished.
    bool start(Transport& transport);
    bool advance(const Part& part);
    void set_finished() { is_finished_.store(true, std::memory_order_release); }
    bool is_finished() const { return is_finished_.load(std::memory_order_acquire); }

  protected:
    int size() const { return group_->size(); }
    int rank() const { return group_->rank; }
    void send(int peer, std::span<const std::byte> data, int phase = 0, int piece = 0);
    void receive(int peer, std::span<std::byte> data, int phase = 0, int piece = 0);

  private:
    virtual void begin() = 0;
    virtual void go_on(const Part&) {}
    Tag tag(int phase) const;

    std::shared_ptr<GroupState> group_;
    OperationKind kind_;
    std::int64_t bytes_;
    int peer_;
    std::int64_t sequence_ = 0;
    Clock::time_point started_, deadline_;
    Transport* transport_ = nullptr;
    int under_way_ = 0;
    std::atomic<bool> is_finished_ = false;
};

using OperationPointer = std::shared_ptr<Operation>;
using GroupPointer = std::shared_ptr<GroupState>;

constexpr int channels = 1 << 12;

// Room for the reductions of a group of so many ranks that are under way at a time.
Bytes most_reducing(int ranks);

// counts: bytes of every rank, laid one behind the other.
using Counts = std::span<const std::int64_t>;
OperationPointer make_all_reduce(GroupPointer group, std::span<std::byte> data, DType dtype, Combine combine);
OperationPointer make_reduce_scatter(GroupPointer group, std::span<const std::byte> all, std::span<std::byte> mine,
                                     Counts counts, DType dtype, Combine combine);
OperationPointer make_all_gather(GroupPointer group, std::span<const std::byte> mine, std::span<std::byte> all,
                                 Counts counts);
OperationPointer make_all_to_all(GroupPointer group, std::span<const std::byte> out, Counts out_counts,
                                 std::span<std::byte> in, Counts in_counts);
OperationPointer make_broadcast(GroupPointer group, std::span<std::byte> data, int root);
OperationPointer make_send(GroupPointer group, std::span<const std::byte> data, int to);
OperationPointer make_receive(GroupPointer group, std::span<std::byte> data, int from);

} // namespace tutti::comm

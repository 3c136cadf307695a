// The operations that only move data. Ranks send to their right-hand neighbours first, so that no rank is everybody's
// first.
#include "base/error.h"
#include "comm/operation.h"

#include <cstring>
#include <numeric>

namespace tutti::comm {
namespace {

// Where each rank's bytes lie, one behind the other.
std::vector<std::int64_t> offsets_of(Counts counts, std::size_t total, int ranks) {
    TUTTI_CHECK(std::ssize(counts) == ranks, "{} counts for {} ranks", counts.size(), ranks);
    std::vector<std::int64_t> offsets(counts.size() + 1, 0);
    std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
    TUTTI_CHECK(offsets.back() == static_cast<std::int64_t>(total), "counts give {} of {} bytes", offsets.back(),
                total);
    return offsets;
}

template <class Byte>
std::span<Byte> part_of(std::span<Byte> all, const std::vector<std::int64_t>& offsets, int rank) {
    return all.subspan(offsets[rank], offsets[rank + 1] - offsets[rank]);
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    TUTTI_CHECK(from.size() == to.size(), "{} bytes into {}", from.size(), to.size());
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

class AllGather final : public Operation {
  public:
    AllGather(GroupPointer group, std::span<const std::byte> mine, std::span<std::byte> all, Counts counts)
        : Operation(std::move(group), OperationKind::all_gather, std::ssize(all)), mine_(mine), all_(all),
          offsets_(offsets_of(counts, all.size(), size())) {}

  private:
    void begin() override {
        copy(mine_, part_of(all_, offsets_, rank()));
        for (int other = 1; other < size(); ++other) {
            const auto theirs = part_of(all_, offsets_, (rank() + other) % size());
            if (!theirs.empty()) receive((rank() + other) % size(), theirs);
        }
        for (int other = 1; other < size() && !mine_.empty(); ++other) send((rank() + other) % size(), mine_);
    }

    std::span<const std::byte> mine_;
    std::span<std::byte> all_;
    std::vector<std::int64_t> offsets_;
};

class AllToAll final : public Operation {
  public:
    AllToAll(GroupPointer group, std::span<const std::byte> out, Counts out_counts, std::span<std::byte> in,
             Counts in_counts)
        : Operation(std::move(group), OperationKind::all_to_all, std::ssize(out)), out_(out), in_(in),
          out_offsets_(offsets_of(out_counts, out.size(), size())),
          in_offsets_(offsets_of(in_counts, in.size(), size())) {}

  private:
    void begin() override {
        copy(part_of(out_, out_offsets_, rank()), part_of(in_, in_offsets_, rank()));
        for (int other = 1; other < size(); ++other) {
            const int peer = (rank() + other) % size();
            const auto theirs = part_of(in_, in_offsets_, peer);
            const auto for_them = part_of(out_, out_offsets_, peer);
            if (!theirs.empty()) receive(peer, theirs);
            if (!for_them.empty()) send(peer, for_them);
        }
    }

    std::span<const std::byte> out_;
    std::span<std::byte> in_;
    std::vector<std::int64_t> out_offsets_, in_offsets_;
};

// A binomial tree: counted from the root, a rank gets the data from the rank that lacks its lowest bit, and passes it
// on to those that have one more below it.
class Broadcast final : public Operation {
  public:
    Broadcast(GroupPointer group, std::span<std::byte> data, int root)
        : Operation(std::move(group), OperationKind::broadcast, std::ssize(data)), data_(data), root_(root) {
        TUTTI_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
    }

  private:
    void begin() override {
        if (data_.empty()) return;
        if (distance() == 0)
            pass_on();
        else
            receive(rank_at(distance() & (distance() - 1)), data_);
    }
    void go_on(const Part& part) override {
        if (part.way == Part::Way::received) pass_on();
    }
    void pass_on() {
        int bit = 1;
        while (bit < size() && (distance() & bit) == 0) bit <<= 1;
        for (bit >>= 1; bit > 0; bit >>= 1)
            if (distance() + bit < size()) send(rank_at(distance() + bit), data_);
    }
    int distance() const { return (rank() - root_ + size()) % size(); }
    int rank_at(int distance) const { return (distance + root_) % size(); }

    std::span<std::byte> data_;
    int root_;
};

class Send final : public Operation {
  public:
    Send(GroupPointer group, std::span<const std::byte> data, int to)
        : Operation(std::move(group), OperationKind::send, std::ssize(data), to), data_(data) {}

  private:
    void begin() override { send(peer(), data_); }
    std::span<const std::byte> data_;
};

class Receive final : public Operation {
  public:
    Receive(GroupPointer group, std::span<std::byte> data, int from)
        : Operation(std::move(group), OperationKind::receive, std::ssize(data), from), data_(data) {}

  private:
    void begin() override { receive(peer(), data_); }
    std::span<std::byte> data_;
};

void check_peer(const GroupState& group, int peer) {
    TUTTI_CHECK(peer >= 0 && peer < group.size() && peer != group.rank, "a message between rank {} and rank {} of {}",
                group.rank, peer, group.size());
}

} // namespace

OperationPointer make_all_gather(GroupPointer group, std::span<const std::byte> mine, std::span<std::byte> all,
                                 Counts counts) {
    TUTTI_CHECK(std::ssize(counts) == group->size() && counts[group->rank] == std::ssize(mine),
                "{} bytes here, and {} counts for {} ranks", mine.size(), counts.size(), group->size());
    return std::make_shared<AllGather>(std::move(group), mine, all, counts);
}

OperationPointer make_all_to_all(GroupPointer group, std::span<const std::byte> out, Counts out_counts,
                                 std::span<std::byte> in, Counts in_counts) {
    return std::make_shared<AllToAll>(std::move(group), out, out_counts, in, in_counts);
}

OperationPointer make_broadcast(GroupPointer group, std::span<std::byte> data, int root) {
    return std::make_shared<Broadcast>(std::move(group), data, root);
}

OperationPointer make_send(GroupPointer group, std::span<const std::byte> data, int to) {
    check_peer(*group, to);
    return std::make_shared<Send>(std::move(group), data, to);
}

OperationPointer make_receive(GroupPointer group, std::span<std::byte> data, int from) {
    check_peer(*group, from);
    return std::make_shared<Receive>(std::move(group), data, from);
}

} // namespace tutti::comm

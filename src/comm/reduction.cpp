// all_reduce and reduce_scatter. Every rank sends to rank r its part of slice r; rank r adds the parts up in rank
// order; all_reduce then sends the sum back to all. Slices go in pieces, a few under way at a time: while one is added
// up the next arrives, the parts of a piece stay in the cache, and memory is needed for a few pieces only.
#include "base/error.h"
#include "comm/combine_parts.h"
#include "comm/operation.h"

#include <algorithm>
#include <cstring>

namespace tutti::comm {
namespace {

constexpr int window = 4;                     // pieces from every peer that there is room for
constexpr int most_posted = 64;               // pieces of a stream that may be under way
constexpr std::int64_t small_bytes = 4 << 10; // what every rank sends whole to every other, to save the way back

// The smaller the more peers send one: a multiple of every element size, and the same on all ranks.
std::int64_t piece_bytes(int ranks) {
    constexpr std::int64_t from_all = 1 << 20, step = 4 << 10, least = 64 << 10, most = 256 << 10;
    return std::clamp(from_all / (ranks - 1) / step * step, least, most);
}

// For a window of pieces from every peer.
std::int64_t room_bytes(int ranks) { return piece_bytes(ranks) * (ranks - 1) * window; }

struct Slice {
    std::int64_t offset = 0, bytes = 0, piece_size = 1;

    int pieces() const { return static_cast<int>((bytes + piece_size - 1) / piece_size); }
    Slice piece(int index) const {
        const std::int64_t begin = index * piece_size;
        return {offset + begin, std::min(piece_size, bytes - begin)};
    }
};

// Pieces of one slice on their way to or from one peer: posted in order, done in any order.
class Stream {
  public:
    // Whether the next of the first `ready` pieces may be posted.
    bool may_post(int ready) const { return posted_ < std::min(ready, done_ + most_posted); }
    int post() { return posted_++; }
    void complete(int piece) {
        ahead_ |= std::uint64_t{1} << (piece - done_);
        for (; ahead_ & 1; ahead_ >>= 1) ++done_;
    }
    int done() const { return done_; } // all before it are

  private:
    int posted_ = 0, done_ = 0;
    std::uint64_t ahead_ = 0; // done pieces from done_ on
};

struct Reduction {
    std::vector<Slice> slices = {}; // of the input, by rank
    const std::byte* input = nullptr;
    std::byte* result = nullptr;                         // of this rank's slice
    std::byte* gathered = nullptr;                       // where all results go; null: they stay apart
    std::unique_ptr<std::byte[]> copied_input = nullptr; // where the result is written over what is still being sent
    DType dtype = DType::float32;
    Combine combine = Combine::sum;
};

class ReduceOperation final : public Operation {
  public:
    ReduceOperation(GroupPointer group, OperationKind kind, std::int64_t bytes, Reduction reduction)
        : Operation(std::move(group), kind, bytes), reduction_(std::move(reduction)), mine_(reduction_.slices[rank()]),
          place_(std::min(mine_.piece_size, mine_.bytes)), room_{place_ * (size() - 1) *
                                                                 std::min(window, mine_.pieces())},
          peers_(size()), parts_(size()) {}

    Bytes room() const override { return room_; }

  private:
    enum Phase { to_add, added };
    struct Peer {
        Stream out, results_out, results_in;
    };

    void begin() override {
        if (room_.count > 0) take_room();
        post_receives();
        post_to_all();
    }

    void go_on(const Part& part) override {
        Peer& peer = peers_[part.peer];
        if (part.way == Part::Way::received && part.phase == to_add) {
            ++arrived_[part.piece % window];
            if (!add_up()) return;
            post_receives();
            post_to_all();
            return;
        }
        if (part.way == Part::Way::received)
            peer.results_in.complete(part.piece);
        else if (part.phase == to_add)
            peer.out.complete(part.piece);
        else
            peer.results_out.complete(part.piece);
        post(part.peer);
    }

    // Parts of this rank's slice, into the room of pieces that were added up.
    void post_receives() {
        for (; expected_ < std::min(mine_.pieces(), added_ + window); ++expected_)
            for (int other = 1; other < size(); ++other) {
                const int peer = (rank() + other) % size();
                receive(peer, {room_for(expected_, peer), length(expected_)}, to_add, expected_);
            }
    }

    bool add_up() {
        const int before = added_;
        for (; added_ < expected_ && arrived_[added_ % window] == size() - 1; ++added_) {
            arrived_[added_ % window] = 0;
            for (int peer = 0; peer < size(); ++peer)
                parts_[peer] = peer == rank() ? reduction_.input + mine_.piece(added_).offset : room_for(added_, peer);
            combine_parts(parts_, result(added_).data(), mine_.piece(added_).bytes, reduction_.dtype,
                          reduction_.combine);
        }
        if (added_ == mine_.pieces() && scratch_) give_room_back();
        return added_ > before;
    }

    void post_to_all() {
        for (int other = 1; other < size(); ++other) post((rank() + other) % size());
    }

    void post(int number) {
        Peer& peer = peers_[number];
        const Slice& slice = reduction_.slices[number];
        while (peer.out.may_post(slice.pieces())) {
            const int index = peer.out.post();
            const Slice piece = slice.piece(index);
            send(number, {reduction_.input + piece.offset, static_cast<std::size_t>(piece.bytes)}, to_add, index);
        }
        if (!reduction_.gathered) return;
        while (peer.results_out.may_post(added_)) {
            const int index = peer.results_out.post();
            send(number, result(index), added, index);
        }
        while (peer.results_in.may_post(peer.out.done())) { // it lies where the part lay that had to be sent first
            const int index = peer.results_in.post();
            const Slice piece = slice.piece(index);
            receive(number, {reduction_.gathered + piece.offset, static_cast<std::size_t>(piece.bytes)}, added, index);
        }
    }

    // Small ones have their own. The others share a few, so that their memory is not asked for again and again.
    bool has_shared_room() const { return 2 * room_.count > room_bytes(size()); }
    void take_room() {
        auto& rooms = (*group().rooms)[room_bytes(size())];
        if (!has_shared_room()) {
            scratch_ = std::make_unique_for_overwrite<std::byte[]>(room_.count);
        } else if (rooms.empty()) {
            scratch_ = std::make_unique_for_overwrite<std::byte[]>(room_bytes(size()));
        } else {
            scratch_ = std::move(rooms.back());
            rooms.pop_back();
        }
    }
    void give_room_back() {
        if (has_shared_room()) (*group().rooms)[room_bytes(size())].push_back(std::move(scratch_));
        scratch_.reset();
    }

    std::byte* room_for(int piece, int peer) {
        const int place = peer < rank() ? peer : peer - 1; // this rank's own part needs none
        return scratch_.get() + (piece % window * (size() - 1) + place) * place_;
    }
    std::size_t length(int piece) const { return static_cast<std::size_t>(mine_.piece(piece).bytes); }
    std::span<std::byte> result(int piece) {
        return {reduction_.result + mine_.piece(piece).offset - mine_.offset, length(piece)};
    }

    Reduction reduction_;
    Slice mine_;
    std::int64_t place_; // of a piece, in the room
    Bytes room_;
    std::vector<Peer> peers_;
    std::vector<const std::byte*> parts_;
    std::unique_ptr<std::byte[]> scratch_;
    int expected_ = 0, added_ = 0; // pieces of this rank's slice that are received, that are summed
    int arrived_[window] = {};     // parts of pieces that are not summed yet
};

} // namespace

Bytes most_reducing(int ranks) { return {2 * room_bytes(ranks)}; }

OperationPointer make_all_reduce(GroupPointer group, std::span<std::byte> data, DType dtype, Combine combine) {
    const auto bytes = static_cast<std::int64_t>(data.size());
    TUTTI_CHECK(bytes % size_of(dtype) == 0, "{} bytes of {}", bytes, name_of(dtype));
    Reduction reduction{.input = data.data(), .dtype = dtype, .combine = combine};
    const int ranks = group->size(), rank = group->rank;
    if (bytes <= small_bytes) {
        reduction.copied_input = std::make_unique_for_overwrite<std::byte[]>(data.size());
        if (bytes > 0) std::memcpy(reduction.copied_input.get(), data.data(), data.size());
        reduction.input = reduction.copied_input.get();
        reduction.slices.assign(ranks, {0, bytes, piece_bytes(ranks)});
        reduction.result = data.data();
    } else {
        const std::int64_t elements = bytes / size_of(dtype);
        const auto begin = [&](int of) { return elements * of / ranks * size_of(dtype); };
        for (int of = 0; of < ranks; ++of)
            reduction.slices.push_back({begin(of), begin(of + 1) - begin(of), piece_bytes(ranks)});
        reduction.gathered = data.data();
        reduction.result = data.data() + reduction.slices[rank].offset;
    }
    return std::make_shared<ReduceOperation>(std::move(group), OperationKind::all_reduce, bytes, std::move(reduction));
}

OperationPointer make_reduce_scatter(GroupPointer group, std::span<const std::byte> all, std::span<std::byte> mine,
                                     Counts counts, DType dtype, Combine combine) {
    Reduction reduction{.input = all.data(), .result = mine.data(), .dtype = dtype, .combine = combine};
    std::int64_t offset = 0;
    TUTTI_CHECK(std::ssize(counts) == group->size(), "{} counts for {} ranks", counts.size(), group->size());
    for (const std::int64_t bytes : counts) {
        TUTTI_CHECK(bytes % size_of(dtype) == 0, "{} bytes of {}", bytes, name_of(dtype));
        reduction.slices.push_back({offset, bytes, piece_bytes(group->size())});
        offset += bytes;
    }
    TUTTI_CHECK(offset == std::ssize(all) && counts[group->rank] == std::ssize(mine),
                "counts give {} of {} bytes in all and {} of {} here", offset, all.size(), counts[group->rank],
                mine.size());
    return std::make_shared<ReduceOperation>(std::move(group), OperationKind::reduce_scatter, offset,
                                             std::move(reduction));
}

} // namespace tutti::comm

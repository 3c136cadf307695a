// DeepSeek's bidirectional schedules: two streams of micro-batches meet on every rank, a forward of one next to a
// backward of the other. Only some backwards are split, at the beginning and the end.
#include "base/counted.h"
#include "base/error.h"
#include "schedule/generate.h"

#include <algorithm>
#include <array>
#include <deque>

namespace tutti::schedule {
namespace {

// What one rank writes: stream 0 enters here first, stream 1 comes from the other side.
class Streams {
  public:
    struct Stream {
        int replica = 0, stage = 0;
        int first = 0, stride = 1; // micro-batch number i is first + i · stride
    };
    Streams(Order& order, Stream zero, Stream one) : order_(order), streams_{zero, one} {}

    void forward(int s) { add(Work::forward, s, forwards_[s]++); }
    void backward(int s, bool split = false) {
        const int number = backwards_[s]++;
        add(split ? Work::backward : Work::full_backward, s, number);
        if (split) waiting_.emplace_back(s, number);
    }
    void weight_gradient() {
        if (waiting_.empty()) return;
        const auto [s, number] = waiting_.front();
        waiting_.pop_front();
        add(Work::weight_gradient, s, number);
    }

  private:
    void add(Work work, int s, int number) {
        const Stream& stream = streams_[s];
        order_.push_back({work, false, static_cast<std::uint16_t>(stream.replica),
                          static_cast<std::uint16_t>(stream.stage), stream.first + number * stream.stride});
    }
    Order& order_;
    std::array<Stream, 2> streams_;
    std::array<int, 2> forwards_{}, backwards_{};
    std::deque<std::pair<int, int>> waiting_;
};

// Rank `place` of `half` ranks between the entry and the middle, `count` micro-batches per stream. The eight parts are
// those of DeepSeek's description, named by what they repeat.
void write(Streams& rank, int half, int place, int count) {
    const int from_middle = half - place - 1;
    for (int i = 0; i < 2 * from_middle; ++i) rank.forward(0); // F0
    for (int i = 0; i < place + 1; ++i) {                      // F0 F1
        rank.forward(0);
        rank.forward(1);
    }
    for (int i = 0; i < from_middle; ++i) { // B1 W1 F1
        rank.backward(1, true);
        rank.weight_gradient();
        rank.forward(1);
    }
    for (int i = 0; i < count - 2 * half + place + 1; ++i) { // F0 B1 F1 B0
        rank.forward(0);
        rank.backward(1);
        rank.forward(1);
        rank.backward(0);
    }
    for (int i = 0; i < from_middle; ++i) { // B1 F1 B0
        rank.backward(1);
        rank.forward(1);
        rank.backward(0);
    }
    bool split = false;
    for (int i = 0; i < place + 1; ++i) { // B1 B0, the second half of them split
        if (i == (place + 1) / 2 && place % 2 == 1) split = true;
        rank.backward(1, split);
        if (i == (place + 1) / 2 && place % 2 == 0) split = true;
        rank.backward(0, split);
    }
    for (int i = 0; i < from_middle; ++i) { // W B0
        rank.weight_gradient();
        rank.backward(0, true);
    }
    for (int i = 0; i < place + 1; ++i) rank.weight_gradient(); // W
}

Orders dual_pipe(const ScheduleParameters& parameters) {
    const int ranks = parameters.ranks;
    Orders orders(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
        const Streams::Stream down{0, r, 0, 2}, up{1, ranks - 1 - r, 1, 2};
        const bool first_half = r < ranks / 2;
        Streams rank(orders[r], first_half ? down : up, first_half ? up : down);
        write(rank, ranks / 2, std::min(r, ranks - 1 - r), parameters.micro_batches / 2);
    }
    return orders;
}

// Half of it, folded: stream 1 is what comes back of stream 0.
Orders dual_pipe_v(const ScheduleParameters& parameters) {
    const int ranks = parameters.ranks;
    Orders orders(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
        Streams rank(orders[r], {0, r, 0, 1}, {0, 2 * ranks - 1 - r, 0, 1});
        write(rank, ranks, r, parameters.micro_batches);
    }
    return orders;
}

void check_both_streams_fill(const ScheduleParameters& p) {
    if (p.micro_batches < 2 * p.ranks)
        fail("{} with {} needs at least {} micro-batches, not {}", p.family, counted(p.ranks, "pipe rank"), 2 * p.ranks,
             p.micro_batches);
}

} // namespace

Family dualpipe() {
    return {
        .name = "dualpipe",
        .description = "two model replicas, a forward of one beside a backward of the other",
        .needs = "P and M even, M at least 2P",
        .shape = {.model_replicas = 2, .placement = StagePlacement::mirrored, .split_backward = true},
        .make = [](ScheduleParameters& p, const Costs&) { return dual_pipe(p); },
        .check =
            [](const ScheduleParameters& p) {
                check_equal_shares(p);
                if (p.ranks % 2 != 0)
                    fail("dualpipe needs an even number of pipe ranks: {} is not, {} would be", p.ranks, p.ranks + 1);
                check_both_streams_fill(p);
            },
        .search_turn = 10,
    };
}

Family dualpipe_v() {
    return {
        .name = "dualpipe-v",
        .description = "dualpipe folded in the middle: one model replica, stages down the ranks and back",
        .needs = "M at least 2P",
        .shape = {.stages_per_rank = 2, .placement = StagePlacement::wave, .split_backward = true},
        .make = [](ScheduleParameters& p, const Costs&) { return dual_pipe_v(p); },
        .check = check_both_streams_fill,
        .variants = [](const ScheduleParameters& plain) { return with_stages(plain, {2}); },
        .search_turn = 9,
    };
}

} // namespace tutti::schedule

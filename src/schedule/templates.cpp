// The classical orders.
#include "schedule/generate.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

ScheduledTask task(Work work, int stage, int micro_batch) {
    return {work, false, 0, static_cast<std::uint16_t>(stage), micro_batch};
}

} // namespace

// All forwards, then all backwards.
Orders gpipe(const ScheduleParameters& parameters) {
    Orders orders(static_cast<std::size_t>(parameters.ranks));
    for (int r = 0; r < parameters.ranks; ++r) {
        for (int m = 0; m < parameters.micro_batches; ++m) orders[r].push_back(task(Work::forward, r, m));
        for (int m = 0; m < parameters.micro_batches; ++m) orders[r].push_back(task(Work::full_backward, r, m));
    }
    return orders;
}

// As many forwards as it takes until the first gradient comes back, then backwards and forwards in turn (DAPPLE).
Orders one_forward_one_backward(const ScheduleParameters& parameters) {
    Orders orders(static_cast<std::size_t>(parameters.ranks));
    const int count = parameters.micro_batches;
    for (int r = 0; r < parameters.ranks; ++r) {
        const int ahead = std::min(parameters.ranks - r, count);
        for (int m = 0; m < ahead; ++m) orders[r].push_back(task(Work::forward, r, m));
        for (int m = 0; m < count; ++m) {
            orders[r].push_back(task(Work::full_backward, r, m));
            if (m + ahead < count) orders[r].push_back(task(Work::forward, r, m + ahead));
        }
    }
    return orders;
}

// Megatron's: groups of P micro-batches go through a rank's first stage, then through its second, and so on; the k-th
// forward of a rank belongs to stage (k / P) mod V of its own. Backwards run through the stages the other way.
Orders interleaved(const ScheduleParameters& parameters) {
    const int ranks = parameters.ranks, per_rank = parameters.stages_per_rank, group = parameters.group;
    const int count = parameters.micro_batches * per_rank;
    auto piece = [&](Work work, int r, int k) {
        const int turn = k / group % per_rank;
        const int own = work == Work::forward ? turn : per_rank - 1 - turn;
        const int micro_batch = k / (group * per_rank) * group + k % group;
        return task(work, own * ranks + r, micro_batch);
    };
    Orders orders(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
        const int ahead = std::min((ranks - r - 1) * 2 + (per_rank - 1) * group, count);
        for (int k = 0; k < ahead; ++k) orders[r].push_back(piece(Work::forward, r, k));
        for (int k = 0; k < count; ++k) {
            if (k + ahead < count) orders[r].push_back(piece(Work::forward, r, k + ahead));
            orders[r].push_back(piece(Work::full_backward, r, k));
        }
    }
    return orders;
}

} // namespace tutti::schedule

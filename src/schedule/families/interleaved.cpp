// Megatron's interleaved 1F1B (Narayanan et al., SC 2021).
#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "schedule/generate.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

// Groups of P micro-batches go through a rank's first stage, then through its second, and so on; the k-th forward of a
// rank belongs to stage (k / P) mod V of its own. Backwards run through the stages the other way.
Orders by_groups(const ScheduleParameters& parameters) {
    const int ranks = parameters.ranks, per_rank = parameters.stages_per_rank, group = parameters.group;
    const int count = parameters.micro_batches * per_rank;
    auto piece = [&](Work work, int r, int k) {
        const int turn = k / group % per_rank;
        const int own = work == Work::forward ? turn : per_rank - 1 - turn;
        const int micro_batch = k / (group * per_rank) * group + k % group;
        return make_task(work, own * ranks + r, micro_batch);
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

void check_groups(const ScheduleParameters& p) {
    if (p.group < p.ranks)
        fail("interleaved with {} needs groups of at least {}, not {}", counted(p.ranks, "pipe rank"),
             counted(p.ranks, "micro-batch"), p.group);
    if (p.micro_batches % p.group != 0)
        fail("interleaved takes micro-batches in groups of {}: {} is no multiple of it, {} would be", p.group,
             p.micro_batches, round_up(p.micro_batches, p.group));
}

} // namespace

Family interleaved() {
    return {
        .name = "interleaved",
        .description = "1f1b with V stages per rank: the bubble is V times smaller, messages are V times as many",
        .needs = "M a multiple of P",
        .shape = {.stages_per_rank = 2},
        .free = {.stages = true, .groups = true},
        .make = [](ScheduleParameters& p, const Costs&) { return by_groups(p); },
        .check = check_groups,
        .variants =
            [](const ScheduleParameters& plain) {
                return with_stages(plain, {2, 3, 4, 6, 8});
            },
        .search_turn = 2,
    };
}

} // namespace tutti::schedule

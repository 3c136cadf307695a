// The part of a step that runs once for all micro-batches: reductions of gradients, the global norm, the update.
#pragma once

#include "compile/ownership.h"
#include "plan/plan_settings.h"
#include "program/program.h"

#include <set>

namespace tutti::compile {

// results: [loss sum][norm][sums over all ranks][one square per chunk]
struct ResultLayout {
    Argument loss, norm, sums;
    Argument square;          // of a chunk that does not count in the norm
    std::int64_t squares = 0; // offset
    Bytes size;
};
ResultLayout lay_out_results(DType loss, std::size_t chunks);

// Sums a chunk's gradients over its last group: all of them, or this rank's shard if the chunk is sharded.
Instruction reduction_of(const Ownership& ownership, std::size_t chunk, DType gradients, Zero zero);

// The square of a chunk's gradients, at the place of the chunk among those that count.
Instruction square_of(const Ownership& ownership, std::size_t chunk, std::int64_t squares, DType gradients, Zero zero);
// Nothing is reduced, and one stage here contributes: its gradients are whole with the last contribution.
bool squares_early(const Ownership& ownership, std::size_t chunk);

struct StepCodeOptions {
    Precision precision;
    Zero zero{};
    std::set<std::int32_t> squared{}; // chunks whose squares were taken in the backward
    std::set<std::int32_t> updated{}; // chunks that were updated there
    bool has_loss = true;             // this rank adds to the loss
    int world = -1;                   // group of all ranks
};

// Before the first micro-batch; empty where nothing has to be cleared.
Segment clear_segment(const Ownership& ownership, const StepCodeOptions& options);
// Reduces the gradients that could not be reduced during the backward; empty if there are none.
Segment reduce_segment(const Ownership& ownership, const StepCodeOptions& options);
Segment norm_segment(const Ownership& ownership, const ResultLayout& results, const StepCodeOptions& options);
// AdamW; and, if ranks updated shards only, the gathering of weights.
Segment update_segment(const Ownership& ownership, const StepCodeOptions& options);

// Its gradients are final within the backward of the last micro-batch, or with a reduction that starts there.
bool is_final_early(const Ownership& ownership, std::size_t chunk);
// The update of one chunk whose gradients are final, before the norm is known: nothing changes where they are not
// finite. What decides is the same on all that own the chunk; `has_loss`: of one rank alone, the loss decides, too.
std::vector<Instruction> early_update(const Ownership& ownership, std::size_t chunk, const ResultLayout& results,
                                      const Precision& precision, Zero zero, bool has_loss);

} // namespace tutti::compile

// Which blocks recompute their activations (activation checkpointing). Plans by flags and the search choose with one
// model of a rank's memory:
//
//   peak = fixed + (in_flight - 1) * what a waiting micro-batch keeps + what the active one has
//
// A recomputed block frees its activations of every micro-batch in flight; while it is recomputed, those of the active
// micro-batch are there beside the rest, of one block at a time:
//
//   peak(chosen) = peak(none) - sum of freed + largest of active
//
// Of all choices that fit, the one with the least work is taken. Earlier stages of a pipeline keep more micro-batches
// between forward and backward, so that they recompute more (Merak's stage-aware recomputation).
#pragma once

#include "compile/graphs/recompute.h"
#include "schedule/parameters.h"

#include <optional>
#include <span>
#include <vector>

namespace tutti::planner {

// A block that may be recomputed, as one rank sees it.
struct RecomputableBlock {
    int stage = 0, block = 0;
    double work = 0;   // that is done a second time, in any one unit
    double freed = 0;  // bytes of all micro-batches in flight
    double active = 0; // bytes of the active micro-batch while the block is recomputed
};

struct RecomputeChoice {
    std::vector<int> blocks{}; // indices, ascending
    double freed = 0;          // by all of them, less the largest of active
    bool fits = true;          // false: not even all of them free enough
};

// The least work that brings the peak down by so many bytes; all blocks that free something where nothing does.
RecomputeChoice least_recomputation(std::span<const RecomputableBlock> blocks, double excess);

// Every block that frees something.
RecomputeChoice full_recomputation(std::span<const RecomputableBlock> blocks);

// The part of its work that a stage does again where recomputing all of it would free `freed` bytes and `excess` of
// them are needed: an estimate, as if blocks could be recomputed in part.
double recomputed_share(double excess, double freed);

// Which blocks may be recomputed.
enum class Recomputing : std::uint8_t { as_needed, none, all };

struct RecomputeRule {
    Recomputing which = Recomputing::as_needed;
    // Instead: of the blocks of every stage this share, to the nearest whole block; a half is rounded up.
    std::optional<double> share{};
};

// A stage that a rank has alone, by estimates from its step graph.
struct StageActivations {
    Bytes budget;      // that it may use
    Bytes fixed;       // model data, and everything else that does not depend on the choice
    int in_flight = 1; // micro-batches between their forward and their backward, the active one among them
    std::vector<compile::BlockActivations> blocks{};
};

// What a waiting micro-batch keeps, and what the active one has beside that before its backward.
struct KeptActivations {
    Bytes waiting, active;
};
KeptActivations kept_by(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when);

Bytes peak_of(const StageActivations& stage, std::span<const int> recomputed, schedule::Recompute when);

// Per stage the numbers of its blocks, in order.
std::vector<std::vector<int>> choose_recompute(std::span<const StageActivations> stages, const RecomputeRule& rule,
                                               schedule::Recompute when);

} // namespace tutti::planner

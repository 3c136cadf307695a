// Where a chain of blocks is cut into stages. Cuts are the first block of each stage but stage 0. Plans by flags cut by
// estimates of the blocks' work; the search cuts by measured times, and by the memory that each stage may take.
#pragma once

#include "graph/blocks.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tutti::planner {

using Cuts = std::vector<int>;

// Whether a stage holds blocks [first, end) in at most this time. A stage that holds a run of blocks holds any part of
// it; where stages are equally fast, filling each as far as it goes is therefore never wrong.
using StageHolds = std::function<bool(int stage, int first, int end, double most)>;

// Each stage as long as it can be, from the first stage on or from the last; at least one block is left for every
// other. Nothing where the blocks do not fit.
std::optional<Cuts> fill_forward(int blocks, int stages, const StageHolds& holds, double most);
std::optional<Cuts> fill_backward(int blocks, int stages, const StageHolds& holds, double most);

// The least time within which stages hold all blocks, by bisection to a relative tolerance (0: to the last bit);
// nothing where `enough` is too little.
std::optional<double> least_bottleneck(int blocks, int stages, const StageHolds& holds, double enough,
                                       double tolerance = 0);

// Cuts with the least bottleneck: filled from the front, from the back, and halfway between. Empty where `enough` is
// too little.
std::vector<Cuts> balanced_cuts(int blocks, int stages, const StageHolds& holds, double enough, double tolerance);

// Stages of as many blocks each.
Cuts even_cuts(int blocks, int stages);

// All of them where there are no more than this; else empty.
std::vector<Cuts> all_cuts(int blocks, int stages, int most);

// How fast a device is, as far as balance depends on it: by the ratio of the two.
struct Speed {
    double flops = 1e14; // per second
    double bytes = 1e12; // per second
};

// Of a micro-batch's forward and backward.
Seconds time_of(const Block& block, const Speed& speed);

// Cuts into this many stages of at least a block each, so that the slowest stage is as fast as can be; among those the
// most even, and then the ones with less work in earlier stages, which hold more micro-batches. Error where there are
// more stages than blocks.
Cuts balance(std::span<const Block> blocks, int stages, const Speed& speed = {});

} // namespace tutti::planner

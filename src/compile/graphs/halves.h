// Halves: sub-pipelined tensor parallelism. A micro-batch goes through its stage as two halves, one a collective behind
// the other, so that each half's collectives run beneath what is computed of the other, across layers:
//
//   half A   compute  collective  .        compute  collective
//   half B   .        compute  collective  .        compute  collective
#pragma once

#include "graph/graph.h"

#include <set>
#include <string>

namespace tutti::compile {

// From the step graph of a stage for half a micro-batch, which has this many samples, one for the whole micro-batch.
// What depends on samples is there twice, the rest once. Inputs whose first dimension is the samples are taken apart,
// outputs are put together again, losses are added; every parameter gets the contributions of both halves. Random
// numbers are those of the samples in the whole. In every phase the halves take turns, each up to its next collective.
// `sampled` names the inputs and outputs whose first dimension is the samples, or a part of them; without it those
// count that have as many there.
Graph in_halves(const Graph& step, std::int64_t samples, const std::set<std::string>& sampled = {});

} // namespace tutti::compile

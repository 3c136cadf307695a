// Sub-pipelining: tensor parallelism on micro-batch halves. A micro-batch goes through its stage as two halves, one a
// collective behind the other, so that the collectives of each half overlap with the computation of the other:
//
//   half A   compute  collective  .        compute  collective
//   half B   .        compute  collective  .        compute  collective
#pragma once

#include "graph/graph.h"

#include <set>
#include <string>

namespace tutti::compile {

// From the step graph of a stage for half a micro-batch, which has this many samples, one for the whole micro-batch.
// Nodes that depend on samples are duplicated, all others are not. Inputs whose first dimension is the samples are
// split, outputs are concatenated, losses are added; every parameter gets the contributions of both halves. Random
// numbers are those of the samples in the whole micro-batch. In every phase the halves take turns, each up to its next
// collective. `sampled` names the inputs and outputs whose first dimension is the samples, or a part of them; if it is
// empty, those count whose first dimension has that size.
Graph sub_pipelined(const Graph& step, std::int64_t samples, const std::set<std::string>& sampled = {});

} // namespace tutti::compile

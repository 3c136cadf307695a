// Gradients that lie where the weights do: a parameter then takes no memory for its gradient.
//
//   forward   backward: input gradients    weight gradient    norm    update
//   reads w   reads w                      writes g over w    g       reads g, writes w from the master copy
//
// That is possible where a micro-batch is all of a step, weights have a wide master copy, and gradients are as narrow
// as weights. It is proved chunk by chunk on a Program that keeps both apart, by going through a step of it.
#pragma once

#include "graph/operator.h"
#include "program/program.h"

#include <span>

namespace tutti {

// Chunks of which no instruction reads a weight after a gradient of its tensor has been written and before the update
// makes it anew; of which every gradient is written before it is added to or read; and which the update makes wholly
// anew. `tensors`: per chunk, the elements of each; what lies between them is zero.
std::vector<bool> find_over_weights(const Program& program, std::span<const std::vector<Range>> tensors,
                                    const OperatorSet& operators);

// Replaces these chunks' gradients by their weights in all instructions; their gradients take no memory any more. A
// skipped update then restores the weights.
void put_over_weights(Program& program, const std::vector<bool>& chunks);

// The bytes of gradients that lie over weights.
Bytes over_weights_bytes(const Program& program);

} // namespace tutti

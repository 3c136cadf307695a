// The buffer of every value that a step graph computes, and the lifetime of the buffer.
#pragma once

#include "base/units.h"
#include "compile/joins.h"
#include "program/program.h"

#include <span>

namespace tutti::compile {

struct Buffer {
    Bytes size;
    Part first_part = Part::forward, last_part = Part::forward;
    std::int32_t first = 0, last = 0; // positions in the order
    bool kept = false;                // an output: alive until its part ends
    bool sent = false;                // for another stage
    std::int64_t offset = -1;
    Region region = Region::transient;
    std::int32_t piece = -1; // that it is part of
};

struct Buffers {
    std::vector<Buffer> all{};
    std::vector<std::int32_t> of{}; // per storage: its buffer; -1: a parameter, an input, or straight in a chunk
    // Per node, a collective: position of the first that reads it, or the part's end; else -1.
    std::vector<std::int32_t> completed{};
    std::size_t pieces = 0; // of the stash, that are offloaded

    Buffer* find(std::size_t storage) {
        return of[storage] < 0 ? nullptr : &all[static_cast<std::size_t>(of[storage])];
    }
};

// `direct`: per value, whether it is written straight to a gradient chunk. `offloaded`: blocks whose stash is in pieces
// of its own.
Buffers assign_buffers(const Graph& graph, const NodeOrder& order, const std::vector<bool>& direct, const Joins& joins,
                       std::span<const int> offloaded);

// Outputs that go to a neighbouring stage.
bool is_forward_message(const Output& output);
bool is_message(const Output& output);

} // namespace tutti::compile

// Where every value of a step graph lies: which segment computes it, which buffer holds it, and at which offset.
#pragma once

#include "graph/graph.h"
#include "memory/chunks.h"
#include "program/program.h"

#include <vector>

namespace tutti {

// Segments of one stage, in the order they run.
enum class Part : std::uint8_t { setup, forward, backward, weight_gradient };
constexpr std::size_t part_count = 4;

struct Placement {
    std::vector<Part> parts;        // per node
    std::vector<std::size_t> order; // nodes in the order they run
    std::vector<Address> addresses; // per value: its first element
    std::vector<bool> direct;       // per value: written straight to a gradient chunk
    std::array<Bytes, part_count> transient{};
    Bytes constants, stash, batch;
};

struct PlacementOptions {
    bool split_backward = false;
    DType gradients = DType::float32;
};

Placement place_values(const Graph& graph, const ChunkLayout& chunks, const PlacementOptions& options);

} // namespace tutti

// Placement: for every value of a step graph, the segment that computes it, its buffer, and its offset.
#pragma once

#include "compile/windows.h"
#include "program/program.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::compile {

// A value that goes to a neighbouring stage.
struct SentValue {
    std::size_t output = 0; // of the graph
    Address address;
    bool copied = false; // it lies elsewhere, or not densely, and has to be copied there
};

struct Placement {
    std::vector<Part> parts;        // per node
    std::vector<std::size_t> order; // nodes in the order they run
    std::vector<Address> addresses; // per value: its first element
    std::vector<Shape> strides;     // per value: the layout's, unless it lies inside another (joins.h)
    std::vector<bool> joined;       // per node: a concatenation that runs no kernel
    std::vector<bool> direct;       // per value: written straight to a gradient chunk
    std::vector<SentValue> sent;
    std::vector<std::int64_t> staging; // per node, a collective: where it packs its operands, or -1
    std::vector<std::int32_t>
        completed;                  // per node, a collective: position of the first that reads it, or the part's end
    Windows weights{}, gradients{}; // of sharded chunks
    std::array<Bytes, part_count> transient{};
    std::array<Bytes, slotted_count> slots{}; // bytes of one slot
    std::vector<Bytes> pieces{};              // of what is offloaded of it
    Bytes constants;
};

struct PlacementOptions {
    bool trains = true;
    bool split_backward = false;
    DType weights = DType::float32, gradients = DType::float32;
    std::map<std::string, std::int64_t> batch{}; // offset of each token input
    std::int64_t constants = 0;                  // where the stage's constants begin
    std::vector<bool> gathered{};                // per chunk: weights are sharded over ranks
    std::vector<bool> cleared{};                 // per chunk: gradients are cleared before a step, and only added to
    std::vector<bool> scattered{};               // per chunk: gradients are
    std::vector<int> offloaded{};                // blocks whose stash is in pieces of its own
};

Placement place_values(const Graph& graph, const StoredPlaces& places, const PlacementOptions& options);

} // namespace tutti::compile

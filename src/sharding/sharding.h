// Sharding: what a rank of a mesh axis has of a value. Strategy: how the ranks share the work of a node.
#pragma once

#include "base/combine.h"
#include "base/parts.h"
#include "base/shape.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::sharding {

// This rank's place along an axis of the mesh.
struct AxisPlace {
    std::string axis; // "tensor"
    int rank = 0, size = 1;
};

struct Sharding {
    enum class Kind : std::uint8_t {
        replicated, // every rank has all of it
        split,      // every rank has its part of one dimension
        partial,    // every rank has a tensor of the whole shape; all of them combined are the value
    };

    Kind kind = Kind::replicated;
    int dim = -1;                   // split: which dimension,
    Parts parts = {};               //        and who has which of it
    Combine combine = Combine::sum; // partial

    static Sharding split(int dim, Parts parts) { return {Kind::split, dim, std::move(parts), Combine::sum}; }
    static Sharding partial(Combine combine = Combine::sum) { return {Kind::partial, -1, {}, combine}; }

    bool is_replicated() const { return kind == Kind::replicated; }
    bool is_split() const { return kind == Kind::split; }
    bool is_partial() const { return kind == Kind::partial; }
    bool operator==(const Sharding&) const = default;
};

// Which of a node's loops is split, and which of its indices each rank takes. Without a loop every rank computes all of
// it; or, where the operator is linear, some inputs are taken as partial sums, and the results are partial sums too.
struct Strategy {
    int loop = -1;             // of resolve_loops
    Parts parts = {};          // of the loop's indices
    std::uint64_t partial = 0; // bit i: input i is a partial sum; only without a loop

    static Strategy split(int loop, Parts parts) { return {loop, std::move(parts), 0}; }
    static Strategy keep_partial(std::uint64_t inputs) { return {-1, {}, inputs}; }
    bool takes_partial(std::size_t input) const { return (partial >> input & 1) != 0; }
    bool operator==(const Strategy&) const = default;
};

// What a rank has of a value of this shape.
Shape local_shape(const Shape& whole, const Sharding& sharding, int rank);

std::string to_string(const Sharding& sharding); // "replicated", "split 2 [0,4) [4,7)", "partial sum"

} // namespace tutti::sharding

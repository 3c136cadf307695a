// Attention as its attributes say it: where its optional inputs are, and which keys a query may see. Read here once,
// for the operator and for the kernels of every backend.
#pragma once

#include "base/ranges.h"
#include "graph/attributes.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// Which of the optional inputs there are, and which of all inputs each is. Documents are two: of the queries and, right
// behind, of the keys.
struct AttentionInputs {
    std::optional<std::size_t> mask = {}, bias = {}, sinks = {}, documents = {};
    std::size_t count = 0; // of all inputs

    // `required`: inputs in front of them; `given`: all. What they are says the attribute "takes", names with a space
    // between them; without it the one that there may be is a mask. Error where that names something else.
    AttentionInputs(const Attributes& attributes, std::size_t required, std::size_t given);
};

// Whether the gradient is asked for that of an optional input: the attribute "wants", names as in "takes".
bool wants_gradient(const Attributes& attributes, std::string_view input);

// Positions are those in the whole sequence, of which these queries and keys may be a part. Those of all queries end
// with the last key, whatever their number.
//
//           0     first_key          whole_keys          key j of these has position first_key + j
//   keys    |-----[========]---------|
//   queries       |----[======]------|                   query i of these has position first_query + i
//                      first_query
struct AttentionPositions {
    std::int64_t queries, keys; // of these operands
    bool causal;
    std::int64_t window; // a query sees this many keys, its own among them; 0: all
    std::int64_t first_query, first_key, whole_queries, whole_keys;

    AttentionPositions(const Attributes& attributes, std::int64_t queries, std::int64_t keys);

    // The keys that queries [first, first + count) see one or the other of, as far as causality and window decide it.
    Range seen_by(std::int64_t first, std::int64_t count = 1) const;
    // The pairs of a query and a key that it sees.
    double pairs() const;
    // The number of query i's row among those of all queries, by which dropout is drawn: the element of head h for it
    // and key j is (h whole_queries + row) whole_keys + first_key + j.
    std::int64_t row(std::int64_t query) const { return first_query + query - (whole_keys - whole_queries); }
    // The same, for some of these queries or some of these keys.
    AttentionPositions part_of_queries(std::int64_t begin, std::int64_t size) const;
    AttentionPositions part_of_keys(std::int64_t begin, std::int64_t size) const;
    // Writes the places of a part to its attributes.
    void place(Attributes& attributes) const;
};

} // namespace tutti

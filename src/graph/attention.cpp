#include "graph/attention.h"

#include "base/error.h"

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

constexpr std::int64_t widest_window = std::int64_t{1} << 48; // beyond any sequence; sums with it do not overflow
constexpr std::string_view optional_inputs[] = {"mask", "bias", "sinks", "documents"};

// The number of whole numbers that [first, first + count) are, each brought to [0, limit], added up.
double sum_of_clamped(std::int64_t first, std::int64_t count, std::int64_t limit) {
    const std::int64_t end = first + count;
    const std::int64_t rises = std::clamp<std::int64_t>(0, first, end),
                       full = std::clamp<std::int64_t>(limit, first, end);
    const double between = 0.5 * static_cast<double>(full - rises) * static_cast<double>(full - 1 + rises);
    return between + static_cast<double>(end - full) * static_cast<double>(limit);
}

std::string_view next_name(std::string_view& names) {
    const std::size_t space = names.find(' ');
    const std::string_view name = names.substr(0, space);
    names = space == std::string_view::npos ? std::string_view() : names.substr(space + 1);
    return name;
}

} // namespace

AttentionInputs::AttentionInputs(const Attributes& attributes, std::size_t required, std::size_t given)
    : count(required) {
    std::string_view names;
    if (attributes.has("takes"))
        names = attributes.text("takes");
    else if (given > required)
        names = "mask";
    const std::string_view all = names;
    std::optional<std::size_t>* const places[] = {&mask, &bias, &sinks, &documents};
    std::size_t next = 0;
    while (!names.empty()) {
        const std::string_view name = next_name(names);
        while (next < std::size(optional_inputs) && optional_inputs[next] != name) ++next;
        if (next == std::size(optional_inputs))
            fail("[attention] takes \"{}\"; what it may take are mask, bias, sinks and documents, in this order", all);
        *places[next] = count;
        count += places[next] == &documents ? 2 : 1;
        ++next;
    }
}

bool wants_gradient(const Attributes& attributes, std::string_view input) {
    if (!attributes.has("wants")) return false;
    std::string_view names = attributes.text("wants");
    while (!names.empty())
        if (next_name(names) == input) return true;
    return false;
}

AttentionPositions::AttentionPositions(const Attributes& attributes, std::int64_t query_count, std::int64_t key_count)
    : queries(query_count), keys(key_count), causal(attributes.flag("causal")),
      window(std::min(attributes.integer("window", 0), widest_window)), first_key(attributes.integer("first_key", 0)),
      whole_queries(attributes.integer("whole_queries", queries)), whole_keys(attributes.integer("whole_keys", keys)) {
    first_query = attributes.integer("first_query", whole_keys - whole_queries);
}

Range AttentionPositions::seen_by(std::int64_t first, std::int64_t count) const {
    const std::int64_t from = first_query + first - first_key, last = from + count - 1;
    Range seen = {0, keys};
    if (window > 0) seen.begin = std::clamp<std::int64_t>(from - window + 1, 0, keys);
    if (causal)
        seen.end = std::clamp<std::int64_t>(last + 1, 0, keys);
    else if (window > 0 && window < keys - last)
        seen.end = std::clamp<std::int64_t>(last + window, 0, keys);
    return {std::min(seen.begin, seen.end), seen.end};
}

// Ends and begins of what the queries see both go up by one from query to query until they meet a border.
double AttentionPositions::pairs() const {
    const std::int64_t from = first_query - first_key;
    double ends = static_cast<double>(queries) * static_cast<double>(keys), begins = 0;
    if (window > 0) begins = sum_of_clamped(from - window + 1, queries, keys);
    if (causal)
        ends = sum_of_clamped(from + 1, queries, keys);
    else if (window > 0)
        ends = sum_of_clamped(from + window, queries, keys);
    return ends - begins;
}

AttentionPositions AttentionPositions::part_of_queries(std::int64_t begin, std::int64_t size) const {
    AttentionPositions part = *this;
    part.first_query += begin;
    part.queries = size;
    return part;
}

AttentionPositions AttentionPositions::part_of_keys(std::int64_t begin, std::int64_t size) const {
    AttentionPositions part = *this;
    part.first_key += begin;
    part.keys = size;
    return part;
}

void AttentionPositions::place(Attributes& attributes) const {
    attributes.set("first_query", first_query);
    attributes.set("first_key", first_key);
    attributes.set("whole_queries", whole_queries);
    attributes.set("whole_keys", whole_keys);
}

} // namespace tutti

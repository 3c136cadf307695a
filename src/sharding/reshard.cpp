#include "sharding/reshard.h"

#include "base/error.h"

#include <limits>

namespace tutti::sharding {
namespace {

bool is_all_to_all(const Sharding& from, const Sharding& to) {
    return from.is_split() && to.is_split() && from.dim != to.dim && in_rank_order(from.parts) &&
           in_rank_order(to.parts);
}

bool gathers(const Sharding& from, const Sharding& to) { return from.is_split() && from != to; }

std::string text(Combine combine) { return combine == Combine::sum ? "sum" : "maximum"; }

// Of a whole value what this rank has to hold. The slices name the axis: they differ from rank to rank.
ValueId slice(Graph& graph, ValueId value, const Sharding& to, const AxisPlace& place, const std::string& source) {
    std::vector<ValueId> pieces;
    for (const Range& range : to.parts[static_cast<std::size_t>(place.rank)])
        pieces.push_back(graph.add(
            "slice", {value},
            {{"axis", place.axis}, {"dim", std::int64_t{to.dim}}, {"start", range.begin}, {"size", range.size()}},
            source));
    return pieces.size() == 1 ? pieces[0] : graph.add("concat", pieces, {{"dim", std::int64_t{to.dim}}}, source);
}

ValueId collective(Graph& graph, ValueId value, const Sharding& from, const Sharding& to, const AxisPlace& place,
                   const std::string& source) {
    const std::int64_t rank = place.rank;
    if (from.is_partial() && to.is_replicated())
        return graph.add("all_reduce", {value}, {{"axis", place.axis}, {"combine", text(from.combine)}}, source);
    if (from.is_partial())
        return graph.add("reduce_scatter", {value},
                         {{"axis", place.axis},
                          {"dim", std::int64_t{to.dim}},
                          {"parts", encode_parts(to.parts)},
                          {"rank", rank},
                          {"combine", text(from.combine)}},
                         source);
    if (to.is_replicated())
        return graph.add("all_gather", {value},
                         {{"axis", place.axis},
                          {"dim", std::int64_t{from.dim}},
                          {"parts", encode_parts(from.parts)},
                          {"rank", rank}},
                         source);
    return graph.add("all_to_all", {value},
                     {{"axis", place.axis},
                      {"gather_dim", std::int64_t{from.dim}},
                      {"gather_parts", encode_parts(from.parts)},
                      {"scatter_dim", std::int64_t{to.dim}},
                      {"scatter_parts", encode_parts(to.parts)},
                      {"rank", rank}},
                     source);
}

} // namespace

std::vector<Sharding> route(const Sharding& from, const Sharding& to) {
    if (from == to) return {};
    TUTTI_CHECK(!to.is_partial(), "{} cannot become {}", to_string(from), to_string(to));
    if (from.is_split() && to.is_split() && !is_all_to_all(from, to)) return {Sharding{}, to};
    return {to};
}

double communication(const Sharding& from, const Sharding& to, Bytes whole, int size) {
    if (from == to) return 0;
    if (to.is_partial()) return std::numeric_limits<double>::infinity();
    if (from.is_replicated()) return 0;
    const double others = static_cast<double>(whole.count) * (size - 1) / size; // what is not this rank's own
    if (from.is_partial() && to.is_replicated()) return 2 * others;
    return is_all_to_all(from, to) ? others / size : others;
}

std::size_t cheapest(std::span<const Representation> there, const Sharding& wanted, Bytes whole, int size,
                     bool backward) {
    std::size_t best = there.size();
    double least = 0;
    for (std::size_t i = 0; i < there.size(); ++i) {
        if (backward && there[i].gathered) continue;
        const double cost = communication(there[i].state, wanted, whole, size);
        if (best == there.size() || cost < least) best = i, least = cost;
    }
    TUTTI_CHECK(best < there.size(), "a value is not there as {}", to_string(wanted));
    return best;
}

Representation resharded(const Representation& from, const Sharding& to, bool backward) {
    return {to, ValueId::none, !backward && (from.gathered || gathers(from.state, to))};
}

Representation reshard(Graph& graph, const Representation& from, const Sharding& to, const AxisPlace& place,
                       bool backward, const std::string& source) {
    Representation result = resharded(from, to, backward);
    result.value = from.state.is_replicated() ? slice(graph, from.value, to, place, source)
                                              : collective(graph, from.value, from.state, to, place, source);
    return result;
}

} // namespace tutti::sharding

#include "cores/assign.h"

#include "base/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace tutti::cores {
namespace {

constexpr std::array<std::pair<Bind, std::string_view>, 4> names = {
    {{Bind::automatic, "auto"}, {Bind::none, "none"}, {Bind::core, "core"}, {Bind::numa, "numa"}}};

using Stretch = std::vector<Unit>; // of neighbours

bool comes_first(const Unit& a, const Unit& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
}

// Along the machine: the units of every core.
std::vector<Stretch> cores_of(const Topology& topology) {
    std::vector<Unit> line = topology.units;
    std::ranges::sort(line, comes_first);
    std::vector<Stretch> cores;
    for (const Unit& unit : line)
        if (!cores.empty() && cores.back().front().core == unit.core)
            cores.back().push_back(unit);
        else
            cores.push_back({unit});
    return cores;
}

// So many units where there are fewer cores: the first unit of every core, then the second, and so on; where not all
// cores have to give one, every so many of them. All units where they do not suffice.
std::vector<Stretch> units_of(const std::vector<Stretch>& cores, std::size_t wanted) {
    std::vector<std::size_t> taken(cores.size(), 0);
    for (std::size_t level = 0, left = wanted; left > 0; ++level) {
        std::vector<std::size_t> having; // a unit of this level
        for (std::size_t core = 0; core < cores.size(); ++core)
            if (cores[core].size() > level) having.push_back(core);
        if (having.empty()) break;
        const std::size_t count = std::min(left, having.size());
        for (std::size_t i = 0; i < having.size(); ++i)
            taken[having[i]] += (i + 1) * count / having.size() - i * count / having.size();
        left -= count;
    }
    std::vector<Stretch> slots;
    for (std::size_t core = 0; core < cores.size(); ++core)
        for (std::size_t i = 0; i < taken[core]; ++i) slots.push_back({cores[core][i]});
    return slots;
}

// Ranks that follow each other on a line of slots, in equal shares: [begin, end) of each. A share has at least as many
// slots as its rank has threads, where the line has.
std::vector<std::pair<std::size_t, std::size_t>> shares(std::span<const int> threads, std::size_t begin,
                                                        std::size_t count) {
    const auto all = std::accumulate(threads.begin(), threads.end(), std::size_t{0});
    std::vector<std::pair<std::size_t, std::size_t>> found;
    std::size_t before = 0;
    for (const int own : threads) {
        const std::size_t after = before + static_cast<std::size_t>(own);
        found.emplace_back(begin + before * count / all, begin + after * count / all);
        before = after;
    }
    return found;
}

// How many ranks, from the first on, go to each memory node, so that each fits on its node whole, the fullest node is
// as empty as can be and few nodes idle. Nothing where that is not possible.
std::optional<std::vector<std::size_t>> ranks_of_nodes(std::span<const int> threads,
                                                       const std::vector<std::size_t>& room) {
    const std::size_t ranks = threads.size(), nodes = room.size();
    using Load = std::pair<double, int>; // of the fullest node; nodes that idle
    constexpr Load never = {std::numeric_limits<double>::infinity(), 0};
    // load[n][r]: with the first r ranks on the first n nodes; taken[n][r]: by the last of these
    std::vector<std::vector<Load>> load(nodes + 1, std::vector<Load>(ranks + 1, never));
    std::vector<std::vector<std::size_t>> taken(nodes + 1, std::vector<std::size_t>(ranks + 1, 0));
    load[0][0] = {0, 0};
    for (std::size_t n = 1; n <= nodes; ++n)
        for (std::size_t r = 0; r <= ranks; ++r) {
            std::size_t sum = 0;
            for (std::size_t own = 0; own <= r; ++own) { // the last ones
                if (own > 0) sum += static_cast<std::size_t>(threads[r - own]);
                if (sum > room[n - 1]) break;
                const auto& [fullest, idle] = load[n - 1][r - own];
                const Load with = {std::max(fullest, static_cast<double>(sum) / static_cast<double>(room[n - 1])),
                                   idle + (own == 0 ? 1 : 0)};
                if (with < load[n][r]) {
                    load[n][r] = with;
                    taken[n][r] = own;
                }
            }
        }
    if (load[nodes][ranks].first == never.first) return std::nullopt;
    std::vector<std::size_t> counts(nodes);
    for (std::size_t n = nodes, r = ranks; n > 0; --n) r -= counts[n - 1] = taken[n][r];
    return counts;
}

// The slots of every rank: on one memory node if all can be, else along the whole line.
std::vector<std::pair<std::size_t, std::size_t>> place(std::span<const int> threads,
                                                       const std::vector<Stretch>& slots) {
    std::vector<std::size_t> room, begins;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (i == 0 || slots[i].front().node != slots[i - 1].front().node) {
            room.push_back(0);
            begins.push_back(i);
        }
        ++room.back();
    }
    const auto counts = ranks_of_nodes(threads, room);
    if (!counts) return shares(threads, 0, slots.size());
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t n = 0, first = 0; n < room.size(); first += (*counts)[n], ++n)
        for (const auto& share : shares(threads.subspan(first, (*counts)[n]), begins[n], room[n]))
            found.push_back(share);
    return found;
}

std::vector<int> numbers_of(std::span<const Stretch> slots) {
    std::vector<int> numbers;
    for (const Stretch& slot : slots)
        for (const Unit& unit : slot) numbers.push_back(unit.number);
    std::ranges::sort(numbers);
    return numbers;
}

// Those of a share that its threads take: units of different cores before siblings.
std::vector<Stretch> by_preference(std::span<const Stretch> share) {
    std::map<int, int> seen; // of each core
    std::vector<std::pair<int, Stretch>> ranked;
    for (const Stretch& slot : share) ranked.emplace_back(seen[slot.front().core]++, slot);
    std::ranges::stable_sort(ranked, {}, &std::pair<int, Stretch>::first);
    std::vector<Stretch> ordered;
    for (auto& [before, slot] : ranked) ordered.push_back(std::move(slot));
    return ordered;
}

RankCores cores_of_share(std::span<const Stretch> share, int threads, Bind bind) {
    const auto count = static_cast<std::size_t>(threads);
    RankCores own;
    if (bind == Bind::automatic && share.size() > count) { // which of them, the system may choose
        own.units = numbers_of(share);
        return own;
    }
    std::vector<Stretch> taken = by_preference(share);
    taken.resize(count);
    own.units = numbers_of(taken);
    for (const Stretch& slot : taken) own.threads.push_back(numbers_of(std::span(&slot, 1)));
    return own;
}

// All units of the memory nodes on which a share lies.
RankCores nodes_of_share(std::span<const Stretch> share, const Topology& topology) {
    std::set<int> nodes;
    for (const Stretch& slot : share) nodes.insert(slot.front().node);
    RankCores own;
    for (const Unit& unit : topology.units)
        if (nodes.contains(unit.node)) own.units.push_back(unit.number);
    std::ranges::sort(own.units);
    return own;
}

std::string reason_against(const Topology& topology, std::int64_t threads, Bind bind) {
    if (bind == Bind::none) return "--bind is none";
    if (topology.units.empty()) return "what cores there are is not known";
    const Topology all{.units = topology.units, .time = 0};
    const int cores = count_cores(all);
    if (bind == Bind::automatic && topology.time > 0 && topology.time < cores)
        return fmt::format("a container limits the time on {} to that of {:.3g}, and others may use them",
                           counted(cores, "core"), topology.time);
    if (bind != Bind::numa && threads > static_cast<std::int64_t>(topology.units.size()))
        return fmt::format("{} share {}", counted(threads, "thread"), counted(cores, "core"));
    return "";
}

} // namespace

std::string_view name_of(Bind bind) {
    for (const auto& [one, name] : names)
        if (one == bind) return name;
    return "?";
}

std::optional<Bind> parse_bind(std::string_view name) {
    for (const auto& [one, known] : names)
        if (known == name) return one;
    return std::nullopt;
}

Assignment assign(const Topology& topology, std::span<const int> threads, Bind bind) {
    const auto all = std::accumulate(threads.begin(), threads.end(), std::int64_t{0});
    Assignment found{.ranks = std::vector<RankCores>(threads.size()), .why_not = reason_against(topology, all, bind)};
    if (!found.why_not.empty()) return found;
    // What a thread is given at a time: a core with its units or, where there are more threads than cores, a unit.
    std::vector<Stretch> slots = cores_of(topology);
    const bool are_few = all <= static_cast<std::int64_t>(slots.size());
    if (!are_few) slots = units_of(slots, static_cast<std::size_t>(all));
    const auto places = are_few ? place(threads, slots) : shares(threads, 0, slots.size());
    for (std::size_t rank = 0; rank < threads.size(); ++rank) {
        const auto [begin, end] = places[rank];
        if (bind == Bind::numa) { // more threads than slots: a share may be empty
            const std::size_t first = std::min(begin, slots.size() - 1);
            found.ranks[rank] =
                nodes_of_share(std::span(slots).subspan(first, std::max<std::size_t>(end - begin, 1)), topology);
        } else {
            found.ranks[rank] = cores_of_share(std::span(slots).subspan(begin, end - begin), threads[rank], bind);
        }
    }
    return found;
}

} // namespace tutti::cores

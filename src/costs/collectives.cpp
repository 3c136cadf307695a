#include "costs/collectives.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

namespace tutti::costs {
namespace {

constexpr std::array<std::string_view, 5> names = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                   "broadcast"};

int depth_of_tree(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

// A level as a group sees it.
struct Tier {
    int members = 1; // of it, each a unit with members of the group
    int beneath = 1; // members within one of these units
    double latency = 0;
    double bytes = 0; // per device and second
};

// The tiers with more than one member, innermost first.
std::vector<Tier> tiers_of(const GroupShape& shape, std::span<const LinkLevel> levels) {
    std::vector<Tier> tiers;
    int beneath = 1;
    double bytes = LinkLevel::unlimited; // what goes through a level above nodes has passed those beneath, too
    for (std::size_t i = 0; i < shape.factors.size(); ++i) {
        const int members = shape.factors[i];
        TUTTI_CHECK(members >= 1 && (members == 1 || i < levels.size()), "{} members on level {} of {}", members, i,
                    levels.size());
        if (i >= levels.size()) continue;
        const double here = levels[i].bytes_per_device();
        bytes = i == 0 ? LinkLevel::unlimited : std::min(bytes, here);
        if (members > 1) tiers.push_back({members, beneath, levels[i].speed.latency, i == 0 ? here : bytes});
        beneath *= members;
    }
    return tiers;
}

// One ring through all members, or rather as many as members share a unit: each unit then sends with all it has. Every
// step waits for the slowest link.
double ring_seconds(Collective what, double bytes, int size, std::span<const Tier> tiers) {
    double latency = 0, rate = LinkLevel::unlimited;
    for (const Tier& tier : tiers) {
        latency = std::max(latency, tier.latency);
        rate = std::min(rate, tier.bytes * tier.beneath);
    }
    const double others = size - 1, part = others / size;
    switch (what) {
    case Collective::all_reduce: return 2 * (others * latency + part * bytes / rate);
    case Collective::all_gather:
    case Collective::reduce_scatter: return others * latency + part * bytes / rate;
    case Collective::broadcast: return depth_of_tree(size) * latency + bytes / rate;
    case Collective::all_to_all: break;
    }
    // Each member sends every other its part of what it holds, directly; the busiest level decides.
    const double held = bytes / size;
    double slowest = 0;
    for (const Tier& tier : tiers) slowest = std::max(slowest, held * (size - tier.beneath) / size / tier.bytes);
    return others * latency + slowest;
}

// Level by level, so that only a part of the tensor goes through the upper ones.
double tiered_seconds(Collective what, double bytes, int size, std::span<const Tier> tiers) {
    double seconds = 0;
    for (const Tier& tier : tiers) {
        const double others = tier.members - 1, part = others / tier.members;
        const double once = others * tier.latency + part * bytes / tier.beneath / tier.bytes;
        switch (what) {
        case Collective::all_reduce: seconds += 2 * once; break;
        case Collective::all_gather:
        case Collective::reduce_scatter: seconds += once; break;
        case Collective::broadcast: seconds += depth_of_tree(tier.members) * tier.latency + bytes / tier.bytes; break;
        case Collective::all_to_all: seconds += others * tier.latency + part * bytes / size / tier.bytes; break;
        }
    }
    return seconds;
}

} // namespace

std::string_view name_of(Collective what) { return names[static_cast<std::size_t>(what)]; }

std::optional<Collective> parse_collective(std::string_view name) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return std::nullopt;
    return static_cast<Collective>(found - names.begin());
}

int GroupShape::size() const {
    int product = 1;
    for (int factor : factors) product *= factor;
    return product;
}

Collective collective_of(InstructionKind kind) {
    switch (kind) {
    case InstructionKind::all_reduce: return Collective::all_reduce;
    case InstructionKind::all_gather:
    case InstructionKind::gather_chunk: return Collective::all_gather;
    case InstructionKind::reduce_scatter:
    case InstructionKind::reduce_chunk: return Collective::reduce_scatter;
    case InstructionKind::all_to_all: return Collective::all_to_all;
    case InstructionKind::kernel:
    case InstructionKind::squared_norm:
    case InstructionKind::finish_norm:
    case InstructionKind::update:
    case InstructionKind::send:
    case InstructionKind::receive: break;
    }
    throw Bug(fmt::format("{} is no collective", name_of(kind)));
}

GroupShape shape_of(const Cluster& cluster, std::span<const ClusterDevice> devices, std::span<const int> members) {
    GroupShape shape;
    std::set<int> nodes;
    std::map<int, int> in_node;
    for (int member : members) {
        const int node = devices[static_cast<std::size_t>(member)].node;
        nodes.insert(node);
        ++in_node[node];
    }
    int most = 1;
    for (const auto& [node, count] : in_node) most = std::max(most, count);
    shape.factors.push_back(most);
    std::set<int> units = std::move(nodes);
    for (std::size_t level = 1; level < cluster.levels.size(); ++level) {
        std::map<int, int> in_unit;
        for (int unit : units) ++in_unit[unit / cluster.levels[level].size];
        most = 1;
        units.clear();
        for (const auto& [unit, count] : in_unit) {
            most = std::max(most, count);
            units.insert(unit);
        }
        shape.factors.push_back(most);
    }
    return shape;
}

double collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, std::span<const LinkLevel> levels) {
    const int size = shape.size();
    if (size <= 1) return 0;
    const std::vector<Tier> tiers = tiers_of(shape, levels);
    const auto count = static_cast<double>(bytes.count);
    return std::min(ring_seconds(what, count, size, tiers), tiered_seconds(what, count, size, tiers));
}

double collective_seconds(Collective what, Bytes bytes, int ranks, const LinkSpeed& speed) {
    const double others = ranks - 1, count = static_cast<double>(bytes.count), received = others / ranks * count;
    const double reducing = received / speed.reduced_bytes, gathering = received / speed.gathered_bytes;
    constexpr std::int64_t small = 4096; // all send everything to all
    switch (what) {
    case Collective::all_reduce:
        if (bytes.count <= small) return speed.latency + others * (count / speed.bytes);
        return 2 * speed.latency + reducing + gathering;
    case Collective::reduce_scatter: return speed.latency + reducing;
    case Collective::all_gather:
    case Collective::all_to_all: return speed.latency + gathering;
    case Collective::broadcast: return depth_of_tree(ranks) * (speed.latency + count / speed.bytes);
    }
    throw Bug("no such collective");
}

double message_seconds(Bytes bytes, int level, std::span<const LinkLevel> levels, int senders) {
    TUTTI_CHECK(level >= 0 && level < static_cast<int>(levels.size()), "level {} of {}", level, levels.size());
    const double share = senders == 0 ? 1.0 : static_cast<double>(senders) / levels[0].size;
    double rate = levels[static_cast<std::size_t>(level)].bytes_per_device(share);
    for (int i = 1; i < level; ++i) rate = std::min(rate, levels[static_cast<std::size_t>(i)].bytes_per_device(share));
    return levels[static_cast<std::size_t>(level)].speed.latency + static_cast<double>(bytes.count) / rate;
}

} // namespace tutti::costs

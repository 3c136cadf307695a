#include "base/error.h"
#include "costs/operator_cost.h"
#include "costs/profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::costs {
namespace {

// Seconds by bytes, rising: between two points along their line, before the first as the first, after the last on with
// the slope of the last two.
double along(std::span<const std::pair<double, double>> points, double bytes) {
    TUTTI_CHECK(!points.empty(), "nothing was timed");
    if (bytes <= points.front().first) return points.front().second;
    std::size_t next = 1;
    while (next + 1 < points.size() && points[next].first < bytes) ++next;
    if (points.size() == 1) return points[0].second * bytes / std::max(points[0].first, 1.0);
    const auto& [x0, y0] = points[next - 1];
    const auto& [x1, y1] = points[next];
    const double slope = std::max((y1 - y0) / (x1 - x0), 0.0);
    return std::max(y0 + slope * (bytes - x0), points.front().second);
}

std::vector<std::pair<double, double>> points_of(std::span<const CollectiveSample> samples, Collective what,
                                                 int ranks) {
    std::vector<std::pair<double, double>> points;
    for (const CollectiveSample& sample : samples)
        if (sample.what == what && sample.ranks == ranks)
            points.emplace_back(static_cast<double>(sample.bytes.count), sample.seconds);
    return points;
}

std::vector<std::pair<double, double>> points_of(std::span<const MessageSample> samples) {
    std::vector<std::pair<double, double>> points;
    for (const MessageSample& sample : samples)
        points.emplace_back(static_cast<double>(sample.bytes.count), sample.seconds);
    return points;
}

LinkSpeed link_of(const std::vector<std::pair<double, double>>& points) {
    if (points.empty()) return {};
    const auto& [bytes, seconds] = points.back();
    const double latency = points.front().second;
    return {.latency = latency, .bytes = std::max(bytes / std::max(seconds - latency, seconds / 2), 1.0)};
}

// How the time of a ring grows with its members.
double ring_growth(Collective what, int from, int to, double bytes, const Cluster& cluster) {
    std::vector<LinkLevel> levels = cluster.levels;
    levels[0].size = std::max(from, to);
    auto seconds = [&](int ranks) {
        return collective_seconds(what, {static_cast<std::int64_t>(bytes)}, {{ranks}}, levels);
    };
    const double known = seconds(from);
    return known > 0 ? seconds(to) / known : 1;
}

// The speed of a large product, or of a kernel that was quicker still.
double peak_of(const CostProfile& profile) {
    double peak = profile.speed.flops;
    for (const auto& [key, sample] : profile.kernels) peak = std::max(peak, sample.flops / sample.seconds);
    return peak;
}

} // namespace

Cluster cluster_of(const CostProfile& profile) {
    const double peak = peak_of(profile);
    const DeviceKind device{.name = profile.machine.device,
                            .memory = profile.memory,
                            .flops16 = peak,
                            .flops32 = peak,
                            .bandwidth = profile.speed.bytes,
                            .launch = profile.speed.launch,
                            .efficiency = {1, 1, 1, 1, 1, 1}};
    const NodeKind node{.device = device,
                        .devices = profile.ranks,
                        .link = link_of(points_of(profile.messages)),
                        .host_memory = profile.host_memory,
                        .host_copy = profile.host_copy};
    Cluster cluster = uniform_cluster(node, 1, {});
    cluster.name = profile.machine.model;
    return cluster;
}

MeasuredCost::MeasuredCost(CostProfile profile, const OperatorSet& operators)
    : profile_(std::move(profile)), operators_(operators), cluster_(cluster_of(profile_)) {
    for (const auto& [key, sample] : profile_.kernels) by_operator_[sample.op].push_back(sample);
}

MeasuredCost::MeasuredCost(CostProfile profile, const OperatorSet& operators, Cluster cluster)
    : MeasuredCost(std::move(profile), operators) {
    if (cluster.kinds.size() > 1)
        fail("a profile is of one kind of device, and {} has {} kinds of node",
             cluster.name.empty() ? "the cluster" : cluster.name, cluster.kinds.size());
    cluster_ = std::move(cluster);
}

void MeasuredCost::add(const std::map<std::string, KernelSample>& kernels, double slowdown) const {
    const auto before = static_cast<double>(profile_.kernels.size()), now = static_cast<double>(kernels.size());
    if (now > 0) profile_.slowdown = (profile_.slowdown * before + slowdown * now) / (before + now);
    for (const auto& [key, sample] : kernels)
        if (profile_.kernels.emplace(key, sample).second) by_operator_[sample.op].push_back(sample);
}

const KernelSample* MeasuredCost::find(const Instruction& instruction, bool accumulate) const {
    for (const CacheSensitivity sensitivity : {CacheSensitivity::sensitive, CacheSensitivity::insensitive})
        for (const bool form : {accumulate, !accumulate})
            if (const auto found = profile_.kernels.find(kernel_key(instruction, form, sensitivity));
                found != profile_.kernels.end())
                return &found->second;
    return nullptr;
}

double MeasuredCost::roofline(double flops, double bytes) const {
    return profile_.speed.launch + std::max(flops / profile_.speed.flops, bytes / profile_.speed.bytes);
}

double MeasuredCost::estimate(std::string_view op, double flops, double bytes) const {
    const double wanted = roofline(flops, bytes);
    const auto found = by_operator_.find(op);
    if (found == by_operator_.end()) return wanted;
    double best = wanted, nearest = std::numeric_limits<double>::infinity();
    for (const KernelSample& sample : found->second) {
        const double ratio = wanted / roofline(sample.flops, sample.bytes);
        if (std::abs(std::log(ratio)) >= nearest) continue;
        nearest = std::abs(std::log(ratio));
        best = sample.seconds * ratio;
    }
    return best;
}

double MeasuredCost::kernel_seconds(std::string_view op, Types inputs, Types outputs, const Attributes& attributes,
                                    int) const {
    const Cost cost = cost_of(operators_, op, inputs, outputs, attributes);
    return estimate(op, cost.flops.count, static_cast<double>(cost.bytes.count));
}

double MeasuredCost::kernel_seconds(const Instruction& instruction, int kind) const {
    if (const KernelSample* known = find(instruction, adds(instruction))) return known->seconds;
    return kernel_seconds(instruction.op, types_of(instruction.inputs), types_of(instruction.outputs),
                          instruction.attributes, kind);
}

double MeasuredCost::first_kernel_seconds(const Instruction& instruction, int kind) const {
    if (!adds(instruction) || !instruction.first_overwrites) return kernel_seconds(instruction, kind);
    const KernelSample* known = find(instruction, false);
    return known ? known->seconds : kernel_seconds(instruction, kind);
}

Bytes MeasuredCost::workspace(const Instruction& instruction) const {
    const KernelSample* known = find(instruction, adds(instruction));
    return known ? known->workspace : Bytes{};
}

double MeasuredCost::collective_seconds(Collective what, Bytes bytes, const GroupShape& shape, int) const {
    const int ranks = shape.size();
    if (ranks <= 1) return 0;
    if (shape.factors.front() != ranks) return tutti::costs::collective_seconds(what, bytes, shape, cluster_.levels);
    const auto count = static_cast<double>(bytes.count);
    int nearest = 0;
    for (const CollectiveSample& sample : profile_.collectives)
        if (sample.what == what && (nearest == 0 || std::abs(sample.ranks - ranks) < std::abs(nearest - ranks)))
            nearest = sample.ranks;
    if (nearest == 0) return tutti::costs::collective_seconds(what, bytes, {{ranks}}, cluster_.levels);
    const double known = along(points_of(profile_.collectives, what, nearest), count);
    return nearest == ranks ? known : known * ring_growth(what, nearest, ranks, count, cluster_);
}

double MeasuredCost::message_seconds(Bytes bytes, int level, int senders, int) const {
    if (level > 0) return tutti::costs::message_seconds(bytes, level, cluster_.levels, senders);
    if (profile_.messages.empty()) return 0;
    return along(points_of(profile_.messages), static_cast<double>(bytes.count));
}

double MeasuredCost::host_copy_seconds(Bytes bytes, int) const {
    return profile_.host_copy.latency + static_cast<double>(bytes.count) / profile_.host_copy.bytes;
}

double MeasuredCost::optimizer_seconds(std::int64_t parameters, std::int64_t bytes_each, int) const {
    return estimate("adamw", 0, static_cast<double>(parameters) * static_cast<double>(bytes_each));
}

double MeasuredCost::norm_seconds(std::int64_t parameters, std::int64_t bytes_each, int) const {
    const auto elements = static_cast<double>(parameters);
    return estimate("squared_norm", 2 * elements, elements * static_cast<double>(bytes_each));
}

Contention MeasuredCost::contention(int) const { return profile_.contention; }

Bytes MeasuredCost::group_room(int ranks) const {
    const auto found = profile_.group_room.lower_bound(ranks);
    if (ranks <= 1 || profile_.group_room.empty()) return {};
    return found == profile_.group_room.end() ? profile_.group_room.rbegin()->second : found->second;
}

} // namespace tutti::costs

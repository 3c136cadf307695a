#include "planner/scaling.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tutti::planner {
namespace {

constexpr double used_at_least = 0.8;       // of the devices
constexpr std::int64_t most_tokens = 16384; // of a micro-batch: beyond that, products do not become more efficient

bool is_power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

std::vector<std::int64_t> micro_batch_sizes(std::int64_t global_batch, std::int64_t sequence) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t b = 1; b <= std::min(largest_micro_batch, global_batch); ++b)
        if (global_batch % b == 0 && (b == 1 || b * sequence <= most_tokens)) sizes.push_back(b);
    // Of large batches few: powers of two, and the largest.
    if (global_batch > 64)
        std::erase_if(sizes, [largest = sizes.back()](std::int64_t b) { return !is_power_of_two(b) && b != largest; });
    return sizes;
}

std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
    for (std::int64_t d = std::min(number, most); d > 1; --d)
        if (number % d == 0) return d;
    return 1;
}

// The time of a micro-batch's forward and backward through the whole model, on the devices of one pipeline rank.
double pass_seconds(PlanModel& model, const PlanPoint& point, const LaidOut& out, int kind) {
    const StageFigures all = model.segments()
                                 .figures(model.key_of(point, BackwardStyle::whole, false), out.shapes, kind)
                                 .stage(0, model.chain().blocks());
    double sum = 0;
    for (double seconds : all.seconds) sum += seconds;
    return sum;
}

// Where nodes differ: how many devices there are of one kind or of several, but not of all.
std::set<int> counts_of_kinds(const costs::Cluster& cluster) {
    std::set<int> counts = {0};
    for (std::size_t kind = 0; kind < std::min<std::size_t>(cluster.kinds.size(), 8); ++kind) {
        const auto nodes = static_cast<int>(std::ranges::count(cluster.nodes, static_cast<int>(kind)));
        for (const int count : std::set<int>(counts)) counts.insert(count + nodes * cluster.kinds[kind].devices);
    }
    counts.erase(0);
    counts.erase(cluster.device_count());
    return counts;
}

} // namespace

std::vector<Strategies> strategy_menu(const PlanModel& model) {
    std::vector<Strategies> menu;
    const int node = model.cluster().levels.front().size;
    for (int tensor = 1; tensor <= node; ++tensor) {
        if (!is_power_of_two(tensor) && node % tensor != 0) continue;
        menu.push_back({.tensor = tensor});
    }
    return menu;
}

std::vector<ScalingCandidate> scaling_candidates(PlanModel& model, const Freedom& freedom) {
    std::vector<ScalingCandidate> candidates;
    const std::int64_t batch = model.workload().global_batch;
    const int devices = freedom.devices.value_or(model.cluster().device_count()), blocks = model.chain().blocks();
    const auto largest = static_cast<double>(model.cluster().largest_memory().count);
    std::map<std::tuple<int, int, int>, std::vector<std::pair<DeviceLayout, LaidOut>>> layouts;
    auto layouts_of = [&](const sharding::Mesh& mesh) -> const auto& {
        auto& known = layouts[{mesh.pipe, mesh.data, mesh.tensor}];
        if (!known.empty()) return known;
        std::vector<DeviceLayout> all =
            freedom.assignment ? all_layouts(model.cluster(), mesh) : std::vector{usual_layout(model.cluster(), mesh)};
        for (DeviceLayout& one : all) {
            LaidOut out = lay_out(model.cluster(), mesh, one);
            known.emplace_back(std::move(one), std::move(out));
        }
        return known;
    };
    auto add = [&](const Strategies& strategies, int pipe, int data, std::int64_t micro_batch) {
        PlanPoint point{.strategies = strategies, .pipe = pipe, .data = data, .micro_batch = micro_batch};
        if (batch % (data * micro_batch) != 0 || pipe > blocks || (strategies.sub_pipeline && micro_batch % 2 != 0))
            return;
        // Even with everything spread over the replicas, a rank holds this much.
        const double elements = static_cast<double>(model.chain().all_parameters) / strategies.tensor / pipe;
        if (!freedom.offload && model.chunk_bytes(elements, 3, 2 * data).total() > largest) return;
        for (const auto& [layout, out] : layouts_of(point.mesh())) {
            ScalingCandidate candidate{.point = point, .micro_batches = batch / (data * micro_batch)};
            candidate.point.layout = layout;
            double rate = 0, slowest = 0; // micro-batches a second, of all ranks together
            try {
                for (const std::vector<int>& kinds : out.kinds) {
                    double pass = 0;
                    for (int kind : kinds) pass = std::max(pass, pass_seconds(model, point, out, kind));
                    rate += 1 / pass;
                    slowest = std::max(slowest, pass);
                    if (kinds == out.kinds.front() && model.cluster().kinds.size() == 1) {
                        rate *= pipe;
                        break;
                    }
                }
            } catch (const Error&) { // this model cannot be split like that
                return;
            }
            candidate.bound = static_cast<double>(candidate.micro_batches) / rate;
            candidate.pass = slowest;
            const int kind = out.kinds.front().front();
            const auto held = static_cast<std::int64_t>(elements);
            auto seconds = [&](costs::Collective what, DType dtype) {
                return data == 1
                           ? 0
                           : model.costs().collective_seconds(what, {held * size_of(dtype)}, out.shapes.data, kind);
            };
            candidate.exchange = seconds(costs::Collective::reduce_scatter, model.workload().precision.gradients);
            const std::int64_t moved = 16; // of a parameter, at the very least
            candidate.update = std::min(model.costs().optimizer_seconds(held, moved, kind),
                                        model.costs().optimizer_seconds(held / data, moved, kind) +
                                            seconds(costs::Collective::all_gather, model.workload().precision.compute));
            candidates.push_back(std::move(candidate));
        }
    };
    if (freedom.scaling) {
        add(freedom.scaling->strategies, freedom.scaling->pipe, freedom.scaling->data, freedom.scaling->micro_batch);
    } else {
        std::vector<std::pair<Strategies, std::int64_t>> ways = freedom.listed; // micro-batch 0: any
        if (ways.empty())
            for (const Strategies& strategies : strategy_menu(model)) ways.emplace_back(strategies, 0);
        for (const auto& [strategies, only] : ways)
            for (int pipe = 1; pipe <= std::min(blocks, devices / strategies.tensor); ++pipe) {
                const std::int64_t most = devices / strategies.tensor / pipe;
                const auto data = static_cast<int>(largest_divisor(batch, most));
                if (data * pipe * strategies.tensor < used_at_least * devices) continue;
                if (freedom.all_devices && data * pipe * strategies.tensor != devices) continue;
                if (freedom.micro_batch) {
                    add(strategies, pipe, data, *freedom.micro_batch);
                    continue;
                }
                for (std::int64_t b : micro_batch_sizes(batch / data, model.workload().sequence))
                    if (only == 0 || only == b) add(strategies, pipe, data, b);
            }
    }
    // Slow devices may be better left alone.
    const bool all = !freedom.scaling && !freedom.devices && freedom.listed.empty();
    for (const int used : all ? counts_of_kinds(model.cluster()) : std::set<int>{})
        for (const Strategies& strategies : strategy_menu(model))
            for (int pipe = 1; pipe <= std::min(blocks, used / strategies.tensor); ++pipe) {
                const auto data = static_cast<int>(largest_divisor(batch, used / strategies.tensor / pipe));
                const int ranks = data * pipe * strategies.tensor;
                if (ranks < used_at_least * used || ranks >= used_at_least * devices) continue;
                for (std::int64_t b : micro_batch_sizes(batch / data, model.workload().sequence))
                    add(strategies, pipe, data, b);
            }
    return candidates;
}

ScalingLaw scaling_law(PlanModel& model, const PlanPoint& point) {
    const LaidOut out = lay_out(model.cluster(), point.mesh(), point.layout);
    ScalingLaw law;
    const int kind = out.kinds.front().front();
    law.tau = pass_seconds(model, point, out, kind);
    const double elements = static_cast<double>(model.chain().all_parameters) / point.strategies.tensor;
    if (point.data > 1)
        law.gamma = model.costs().collective_seconds(costs::Collective::all_reduce,
                                                     {static_cast<std::int64_t>(elements) * 4}, out.shapes.data, kind);
    const StageFigures block =
        model.segments().figures(model.key_of(point, BackwardStyle::whole, false), out.shapes, kind).stage(1, 2);
    if (point.pipe > 1)
        law.message = model.costs().message_seconds({static_cast<std::int64_t>(block.slot(Region::received))},
                                                    out.level(0, point.pipe - 1), out.senders, kind);
    return law;
}

std::vector<std::int64_t> nearest_batches(const PlanModel& model) {
    const std::int64_t batch = model.workload().global_batch;
    const int devices = model.cluster().device_count(), node = model.cluster().levels.front().size;
    auto works = [&](std::int64_t size) {
        for (int tensor = 1; tensor <= node; tensor *= 2)
            for (int pipe = 1; pipe <= std::min(model.chain().blocks(), devices / tensor); ++pipe)
                if (const std::int64_t most = devices / tensor / pipe;
                    static_cast<double>(largest_divisor(size, most) * pipe * tensor) >= used_at_least * devices)
                    return true;
        return false;
    };
    std::vector<std::int64_t> found;
    for (std::int64_t below = batch; below > 0; --below)
        if (works(below)) {
            found.push_back(below);
            break;
        }
    for (std::int64_t above = batch + 1; above <= 2 * batch + devices; ++above)
        if (works(above)) {
            found.push_back(above);
            break;
        }
    return found;
}

} // namespace tutti::planner

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
constexpr std::int64_t most_tokens = 16384; // of a micro-batch: beyond that, matmuls do not become more efficient

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
double pass_seconds(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed, int kind) {
    const StageFigures all = model.segments()
                                 .figures(model.key_of(decisions, BackwardStyle::whole, false), placed.shapes, kind)
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

class ScalingEnumeration {
  public:
    ScalingEnumeration(PlanModel& model, const SearchSpace& space)
        : model_(model), space_(space), batch_(model.workload().global_batch), blocks_(model.chain().blocks()),
          devices_(space.devices.value_or(model.cluster().device_count())) {}

    std::vector<ScalingCandidate> run() {
        if (space_.scaling) {
            const PlanDecisions& only = *space_.scaling;
            add(only.tensor_parallel, only.pipe, only.data, only.micro_batch);
            return std::move(candidates_);
        }
        std::vector<std::pair<TensorParallelism, std::int64_t>> ways = space_.tensor_parallel; // micro-batch 0: any
        if (ways.empty())
            for (const TensorParallelism& tensor : tensor_parallel_menu(model_)) ways.emplace_back(tensor, 0);
        for (const auto& [tensor, micro_batch] : ways) add_for_all_devices(tensor, micro_batch);
        // Slow devices may be better left alone.
        if (!space_.devices && space_.tensor_parallel.empty())
            for (const int used : counts_of_kinds(model_.cluster()))
                for (const TensorParallelism& tensor : tensor_parallel_menu(model_)) add_for_some_devices(tensor, used);
        return std::move(candidates_);
    }

  private:
    int replicas(const TensorParallelism& tensor, int pipe, int devices) const {
        return static_cast<int>(largest_divisor(batch_, devices / tensor.ranks / pipe));
    }

    void add_for_all_devices(const TensorParallelism& tensor, std::int64_t only) {
        for (int pipe = 1; pipe <= std::min(blocks_, devices_ / tensor.ranks); ++pipe) {
            const int data = replicas(tensor, pipe, devices_), ranks = data * pipe * tensor.ranks;
            if (ranks < used_at_least * devices_ || (space_.all_devices && ranks != devices_)) continue;
            if (space_.micro_batch) {
                add(tensor, pipe, data, *space_.micro_batch);
                continue;
            }
            for (std::int64_t b : micro_batch_sizes(batch_ / data, model_.workload().sequence))
                if (only == 0 || only == b) add(tensor, pipe, data, b);
        }
    }

    void add_for_some_devices(const TensorParallelism& tensor, int used) {
        for (int pipe = 1; pipe <= std::min(blocks_, used / tensor.ranks); ++pipe) {
            const int data = replicas(tensor, pipe, used), ranks = data * pipe * tensor.ranks;
            if (ranks < used_at_least * used || ranks >= used_at_least * devices_) continue;
            for (std::int64_t b : micro_batch_sizes(batch_ / data, model_.workload().sequence))
                add(tensor, pipe, data, b);
        }
    }

    // With every layout. Nothing where the batch or the blocks cannot be divided so, or memory is too small.
    void add(const TensorParallelism& tensor, int pipe, int data, std::int64_t micro_batch) {
        const PlanDecisions decisions{
            .tensor_parallel = tensor, .pipe = pipe, .data = data, .micro_batch = micro_batch};
        if (batch_ % (data * micro_batch) != 0 || pipe > blocks_ || (tensor.sub_pipeline && micro_batch % 2 != 0))
            return;
        // Even with everything sharded over the replicas, a rank owns this much.
        const double elements = static_cast<double>(model_.chain().all_parameters) / tensor.ranks / pipe;
        if (!space_.offload && model_.chunk_bytes(elements, 3, 2 * data).total() >
                                   static_cast<double>(model_.cluster().largest_memory().count))
            return;
        for (const auto& [layout, placed] : layouts_of(decisions.mesh())) {
            ScalingCandidate candidate{.decisions = decisions, .micro_batches = batch_ / (data * micro_batch)};
            candidate.decisions.layout = layout;
            try {
                add_passes(candidate, placed);
            } catch (const Error&) { // this model cannot be split like that
                return;
            }
            add_step_costs(candidate, placed, static_cast<std::int64_t>(elements));
            candidates_.push_back(std::move(candidate));
        }
    }

    const std::vector<std::pair<DeviceLayout, PlacedRanks>>& layouts_of(const sharding::Mesh& mesh) {
        auto& known = layouts_[{mesh.pipe, mesh.data, mesh.tensor}];
        if (!known.empty()) return known;
        std::vector<DeviceLayout> all =
            space_.assignment ? all_layouts(model_.cluster(), mesh) : std::vector{usual_layout(model_.cluster(), mesh)};
        for (DeviceLayout& one : all) {
            PlacedRanks placed = place_ranks(model_.cluster(), mesh, one);
            known.emplace_back(std::move(one), std::move(placed));
        }
        return known;
    }

    void add_passes(ScalingCandidate& candidate, const PlacedRanks& placed) {
        double rate = 0; // micro-batches a second, of all ranks together
        for (const std::vector<int>& kinds : placed.kinds) {
            double pass = 0;
            for (int kind : kinds) pass = std::max(pass, pass_seconds(model_, candidate.decisions, placed, kind));
            rate += 1 / pass;
            candidate.pass = std::max(candidate.pass, pass);
            if (kinds == placed.kinds.front() && model_.cluster().kinds.size() == 1) {
                rate *= candidate.decisions.pipe;
                break;
            }
        }
        candidate.bound = static_cast<double>(candidate.micro_batches) / rate;
    }

    // The reduction of gradients over replicas, and the update, of a rank with so many elements.
    void add_step_costs(ScalingCandidate& candidate, const PlacedRanks& placed, std::int64_t elements) {
        const int kind = placed.kinds.front().front(), data = candidate.decisions.data;
        const Precision& types = model_.workload().precision;
        auto seconds = [&](costs::Collective what, DType dtype) {
            return data == 1
                       ? 0
                       : model_.costs().collective_seconds(what, {elements * size_of(dtype)}, placed.shapes.data, kind);
        };
        candidate.communication = seconds(costs::Collective::reduce_scatter, types.gradients);
        const std::int64_t moved = 16; // of a parameter, at the very least
        candidate.update = std::min(model_.costs().optimizer_seconds(elements, moved, kind),
                                    model_.costs().optimizer_seconds(elements / data, moved, kind) +
                                        seconds(costs::Collective::all_gather, types.compute));
    }

    PlanModel& model_;
    const SearchSpace& space_;
    std::int64_t batch_;
    int blocks_, devices_;
    std::map<std::tuple<int, int, int>, std::vector<std::pair<DeviceLayout, PlacedRanks>>> layouts_{};
    std::vector<ScalingCandidate> candidates_{};
};

} // namespace

std::vector<TensorParallelism> tensor_parallel_menu(const PlanModel& model) {
    std::vector<TensorParallelism> menu;
    const int node = model.cluster().levels.front().size;
    for (int tensor = 1; tensor <= node; ++tensor) {
        if (!is_power_of_two(tensor) && node % tensor != 0) continue;
        menu.push_back({.ranks = tensor});
    }
    return menu;
}

std::vector<ScalingCandidate> scaling_candidates(PlanModel& model, const SearchSpace& space) {
    return ScalingEnumeration(model, space).run();
}

ScalingLaw scaling_law(PlanModel& model, const PlanDecisions& decisions) {
    const PlacedRanks placed = place_ranks(model.cluster(), decisions.mesh(), decisions.layout);
    ScalingLaw law;
    const int kind = placed.kinds.front().front();
    law.tau = pass_seconds(model, decisions, placed, kind);
    const double elements = static_cast<double>(model.chain().all_parameters) / decisions.tensor_parallel.ranks;
    if (decisions.data > 1)
        law.gamma = model.costs().collective_seconds(
            costs::Collective::all_reduce, {static_cast<std::int64_t>(elements) * 4}, placed.shapes.data, kind);
    const StageFigures block =
        model.segments().figures(model.key_of(decisions, BackwardStyle::whole, false), placed.shapes, kind).stage(1, 2);
    if (decisions.pipe > 1)
        law.message = model.costs().message_seconds({static_cast<std::int64_t>(block.slot(Region::received))},
                                                    placed.level(0, decisions.pipe - 1), placed.senders, kind);
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

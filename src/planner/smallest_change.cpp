#include "planner/smallest_change.h"

#include "base/counted.h"
#include "base/error.h"
#include "ops/operators.h"
#include "planner/cluster_sizes.h"
#include "planner/offload_search.h"
#include "planner/scaling.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>

namespace tutti::planner {
namespace {

// Of the processor: how much is asked should not depend on what else runs.
double used_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Late {}; // thrown out of a search

class Probe {
  public:
    Probe(const BlockChain& chain, const PlannerOptions& options, double seconds)
        : chain_(chain), options_(options), end_(used_seconds() + seconds) {}

    // Whether there is a plan of what asks for the least memory: micro-batches of one sequence, 1F1B, states and
    // weights sharded over replicas, as much recomputed as it takes. Times do not matter here, nor where they come
    // from.
    bool fits(const costs::Cluster& cluster, const PlannerWorkload& workload) const {
        const costs::RooflineCost costs(cluster, ops::all_operators());
        PlanModel model(chain_, costs, workload, options_);
        const int devices = cluster.device_count();
        const std::vector<TensorParallelism> menu = tensor_parallel_menu(model);
        const auto largest = static_cast<double>(cluster.largest_memory().count);
        for (auto tensor_parallel = menu.rbegin(); tensor_parallel != menu.rend(); ++tensor_parallel) {
            if (!splits(model, *tensor_parallel)) continue;
            for (int pipe = std::min(chain_.blocks(), devices / tensor_parallel->ranks); pipe >= 1; --pipe) {
                if (is_late()) throw Late{};
                int data = devices / tensor_parallel->ranks / pipe;
                while (data > 1 && workload.global_batch % data != 0) --data;
                const PlanDecisions scaling{.tensor_parallel = *tensor_parallel, .pipe = pipe, .data = data};
                const double held = static_cast<double>(chain_.all_parameters) / tensor_parallel->ranks / pipe;
                if (10 * scaling.mesh().ranks() < 9 * devices ||
                    model.least_chunk_bytes(held, data > 1 ? 3 : 0, data, model.micro_batches(data, 1)).total() +
                            model.kept_free(largest) >
                        largest)
                    continue;
                const SearchSpace space{.families = {"1f1b"},
                                        .assignment = !cluster.is_uniform(),
                                        .scaling = scaling,
                                        .zero = data > 1 ? 3 : 0};
                if (!search(model, {.space = space, .kept = 1}).best.empty()) return true;
            }
        }
        return false;
    }

    // What the fastest plan that offloads takes of a host for the rank with most of it.
    std::optional<double> host_memory(const costs::Cluster& cluster, const PlannerWorkload& workload) const {
        const costs::RooflineCost costs(cluster, ops::all_operators());
        PlanModel model(chain_, costs, workload, options_);
        const SearchResult found =
            plans_with_offload(model, {}, std::numeric_limits<double>::infinity(), [&](const SearchProgress&) {
                if (is_late()) throw Late{};
                return true;
            });
        if (found.best.empty()) return std::nullopt;
        return found.best.front().cost.most_on_host();
    }

  private:
    // Whether the model can be split so at all: heads are whole.
    static bool splits(PlanModel& model, const TensorParallelism& tensor_parallel) {
        const PlanDecisions decisions{.tensor_parallel = tensor_parallel};
        const PlacedRanks placed =
            place_ranks(model.cluster(), decisions.mesh(), usual_layout(model.cluster(), decisions.mesh()));
        try {
            model.segments().figures(model.key_of(decisions, BackwardStyle::whole, true), placed.shapes, 0);
            return true;
        } catch (const Error&) {
            return false;
        }
    }
    bool is_late() const { return used_seconds() >= end_; }

    const BlockChain& chain_;
    PlannerOptions options_;
    double end_;
};

// The least number above `low` that fits, as far as a scan with growing steps and halving between the last two sees:
// what fits need not be every larger number, since batches and layers are shared out whole.
std::optional<int> least(int low, int most, const std::function<bool(int)>& fits) {
    int below = low;
    for (int number = low + 1; number <= most; number += std::max(1, number / 8)) {
        if (!fits(number)) {
            below = number;
            continue;
        }
        while (number - below > 1) {
            const int middle = below + (number - below) / 2;
            (fits(middle) ? number : below) = middle;
        }
        return number;
    }
    return std::nullopt;
}

// Weights, gradients and optimizer states, once.
double states_of(const BlockChain& chain, const Precision& types) {
    return static_cast<double>(chain.all_parameters * types.bytes_per_parameter());
}

// Where to begin: with fewer there is not even room for one copy of the states.
int fewest(int now, double states, double memory_each) {
    return std::max(now, static_cast<int>(std::min(1e9, std::ceil(states / memory_each))) - 1);
}

void ask_for_devices(FittingChanges& changes, const Probe& probe, const BlockChain& chain,
                     const costs::Cluster& cluster, const PlannerWorkload& workload) {
    const auto nodes = static_cast<int>(cluster.nodes.size());
    const double states = states_of(chain, workload.precision),
                 memory = static_cast<double>(cluster.device_memory().count);
    const int now = cluster.levels.size() < 2 ? cluster.device_count() : nodes;
    const int low = fewest(now, states, memory / now);
    if (cluster.levels.size() < 2)
        changes.devices = least(low, std::min(costs::most_devices, 64 * low),
                                [&](int count) { return probe.fits(with_devices(cluster, count), workload); });
    else
        changes.nodes = least(low, std::min(costs::most_devices * nodes / cluster.device_count(), 64 * low),
                              [&](int count) { return probe.fits(with_node_count(cluster, count), workload); });
}

void ask_for_memory(FittingChanges& changes, const Probe& probe, const BlockChain& chain, const costs::Cluster& cluster,
                    const PlannerWorkload& workload, const std::optional<RankedPlan>& closest) {
    const Bytes largest = cluster.largest_memory();
    // In steps that a person would name.
    const Bytes step{largest.count >= std::int64_t{16} << 30 ? std::int64_t{1} << 30
                                                             : std::max<std::int64_t>(1, largest.count / 16)};
    double missing = states_of(chain, workload.precision) / cluster.device_count() - static_cast<double>(largest.count);
    if (closest) missing = std::max(missing, -closest->cost.tightest().margin() / 2);
    const int low = static_cast<int>(std::clamp(missing / static_cast<double>(step.count), 1.0, 1e6)) - 1;
    const auto steps = least(low, 64 * (low + 1),
                             [&](int count) { return probe.fits(with_more_memory(cluster, count * step), workload); });
    if (steps) changes.memory = *steps * step;
}

void ask_for_types(FittingChanges& changes, const Probe& probe, const costs::Cluster& cluster,
                   const PlannerWorkload& workload) {
    PlannerWorkload other = workload;
    other.precision.moments = DType::bfloat16;
    if (other.precision != workload.precision) changes.moments = probe.fits(cluster, other);
    if (changes.moments || other.precision.compute != DType::bfloat16 || !other.precision.has_master()) return;
    other.precision.master = DType::bfloat16;
    changes.master = probe.fits(cluster, other);
}

// On few devices, where that is searched for: with as much as anyone could want, and then with less and less.
void ask_for_host_memory(FittingChanges& changes, const Probe& probe, costs::Cluster cluster,
                         const PlannerWorkload& workload) {
    constexpr std::int64_t step = std::int64_t{1} << 30;
    if (cluster.device_count() > few_devices) return;
    const int devices = std::ranges::max(cluster.kinds, {}, &costs::NodeKind::devices).devices;
    for (Bytes host{step << 20}; host.count > 0; host = *changes.host - Bytes{step}) {
        for (costs::NodeKind& kind : cluster.kinds) kind.host_memory = host;
        const std::optional<double> needed = probe.host_memory(cluster, workload);
        if (!needed) return;
        const double of_node = *needed * devices / host_share;
        const Bytes enough{static_cast<std::int64_t>(std::ceil(of_node / static_cast<double>(step))) * step};
        changes.host = std::min(enough, host);
    }
}

} // namespace

FittingChanges changes_that_fit(const BlockChain& chain, const costs::Cluster& cluster, const PlannerWorkload& workload,
                                const PlannerOptions& options, const std::optional<RankedPlan>& closest,
                                double seconds) {
    FittingChanges changes;
    // Each has a share of the time, the cheap questions first.
    auto ask = [&](double share, const std::function<void(const Probe&)>& question) {
        try {
            question(Probe(chain, options, share * seconds));
        } catch (const Late&) {
        } catch (const Error&) { // such as a cluster that would be too large
        }
    };
    ask(0.1, [&](const Probe& probe) { ask_for_host_memory(changes, probe, cluster, workload); });
    ask(0.15, [&](const Probe& probe) { ask_for_types(changes, probe, cluster, workload); });
    ask(0.25, [&](const Probe& probe) { ask_for_devices(changes, probe, chain, cluster, workload); });
    ask(0.5, [&](const Probe& probe) { ask_for_memory(changes, probe, chain, cluster, workload, closest); });
    return changes;
}

std::string what_would_fit(const BlockChain& chain, const costs::Cluster& cluster, const PlannerWorkload& workload,
                           const PlannerOptions& options, const std::optional<RankedPlan>& closest, double seconds) {
    const FittingChanges changes = changes_that_fit(chain, cluster, workload, options, closest, seconds);
    std::vector<std::string> words;
    if (changes.nodes)
        words.push_back(fmt::format("{} instead of {}", counted(*changes.nodes, "node"), cluster.nodes.size()));
    if (changes.devices)
        words.push_back(fmt::format("{} instead of {}", counted(*changes.devices, "device"), cluster.device_count()));
    if (changes.memory)
        words.push_back(
            cluster.is_uniform()
                ? fmt::format("devices of {}", to_string(cluster.kinds.front().device.memory + *changes.memory))
                : fmt::format("{} more on every device", to_string(*changes.memory)));
    if (changes.moments) words.emplace_back("--moments bf16");
    if (changes.master) words.emplace_back("--moments bf16 --master bf16");
    if (changes.host)
        words.push_back(
            fmt::format("{} of host memory{}", to_string(*changes.host), cluster.nodes.size() > 1 ? " a node" : ""));
    if (words.empty()) return "";
    return fmt::format("; what would fit: {}", fmt::join(words, ", or "));
}

} // namespace tutti::planner

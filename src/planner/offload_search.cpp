#include "planner/offload_search.h"

#include "base/error.h"
#include "planner/evaluate/offloading.h"
#include "planner/evaluate/splitting.h"
#include "planner/scaling.h"

#include <algorithm>
#include <limits>
#include <map>

namespace tutti::planner {
namespace {

// Bytes of operands that a node's AdamW goes through in a second: an assumption, for hosts that were not measured.
constexpr double host_update = 60e9;

OffloadedRank step_of(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed,
                      const ReadySchedule& schedule, int rank, double room) {
    const int kind = placed.kinds[static_cast<std::size_t>(rank)].front();
    const costs::NodeKind& node = model.cluster().kinds[static_cast<std::size_t>(kind)];
    const int replica_count = decisions.data * std::max(1, decisions.schedule.model_replicas);
    const BackwardStyle style = style_of(decisions.schedule);
    OffloadedRank result{.device = room, .copy = node.host_copy};
    result.host_update = host_update / node.devices;
    constexpr std::int64_t many = 1 << 20;
    result.device_update = static_cast<double>(many) / model.costs().optimizer_seconds(many, 1, kind);
    std::map<int, std::pair<int, int>> stages; // of the rank: their blocks in `result`
    for (const StageSlots& slots : schedule.ranks[static_cast<std::size_t>(rank)]) {
        if (stages.contains(slots.stage)) continue; // of another model replica
        const std::span<const int> again = decisions.recomputed_in(slots.stage);
        const int begin = static_cast<int>(result.blocks.size());
        for (int b = decisions.first_block(slots.stage); b < decisions.end_block(slots.stage, model.chain().blocks());
             ++b) {
            const bool recomputed = std::ranges::find(again, b) != again.end();
            const StageCost cost = model.stage_cost(decisions, placed, style, rank, b, b + 1,
                                                    recomputed ? std::span<const int>(&b, 1) : std::span<const int>{});
            const double over = PlanModel::over_weights(cost.figures, decisions);
            const RankBytes bytes = model.chunk_bytes(cost.figures.elements, decisions.zero, replica_count, over);
            result.blocks.push_back(
                {.weights = bytes.weights,
                 .gradients = bytes.gradients,
                 .over_weights = over > 0,
                 .states = bytes.master + bytes.moments,
                 .forward = cost.times.forward,
                 .backward = cost.times.backward + cost.times.weight_gradient + cost.times.recompute});
        }
        stages[slots.stage] = {begin, static_cast<int>(result.blocks.size())};
    }
    for (const schedule::ScheduledTask& task : schedule.schedule.rank(rank)) {
        const auto& [first, end] = stages.at(task.stage);
        if (task.work == schedule::Work::forward || schedule::is_backward(task.work))
            result.passes.push_back({first, end, schedule::is_backward(task.work)});
    }
    return result;
}

class OffloadSearch {
  public:
    OffloadSearch(PlanModel& model, const SearchSpace& space, double most, const ProgressListener& listener)
        : model_(model), space_(space), best_(most), listener_(listener) {
        space_.offload = true;
    }

    SearchResult run() {
        std::vector<ScalingCandidate> candidates = scaling_candidates(model_, space_);
        std::ranges::stable_sort(candidates, {}, &ScalingCandidate::bound);
        for (const ScalingCandidate& one : candidates) {
            if (one.bound >= best_) break;
            SearchProgress& progress = found_.progress;
            progress.best = best_ < std::numeric_limits<double>::infinity() ? best_ : 0;
            if (listener_ && !listener_(progress)) break;
            attempt(one);
        }
        std::ranges::stable_sort(found_.best, {}, [](const RankedPlan& plan) { return plan.cost.time; });
        return std::move(found_);
    }

  private:
    void attempt(const ScalingCandidate& one) {
        const PlacedRanks placed = place_ranks(model_.cluster(), one.decisions.mesh(), one.decisions.layout);
        PlanDecisions decisions = one.decisions;
        ReadySchedule* ready = model_.schedules().find(
            {.family = "1f1b", .ranks = decisions.pipe, .micro_batches = static_cast<int>(one.micro_batches)});
        if (!ready) return;
        decisions.schedule = ready->schedule.parameters;
        decisions.schedule.recompute.clear();
        std::optional<RankedPlan> best;
        for (const Zero zero : {Zero{0}, Zero{1}, Zero{3}}) {
            if (zero.shards_states() && decisions.data == 1) break;
            if (space_.zero && zero != *space_.zero) continue;
            decisions.zero = zero;
            Splitter splitter(model_, decisions, placed, *ready);
            splitter.complete(splitter.even()); // everything recomputed, where it does not fit so
            PlanDecisions recomputed = splitter.decisions(), plain = recomputed;
            plain.recompute.clear();
            for (PlanDecisions* tried : {&plain, &recomputed}) {
                const Recomputing asked = model_.options().recompute;
                if (asked == (tried == &plain ? Recomputing::all : Recomputing::none)) continue;
                tried->offload = true;
                ++found_.progress.plans;
                std::optional<PlanCost> cost = evaluate_offloaded(model_, *tried, placed, *ready, best_);
                if (!cost || cost->time >= best_) continue;
                best_ = cost->time;
                best = RankedPlan{"", *tried, std::move(*cost)};
            }
        }
        if (best) found_.best.push_back(std::move(*best));
    }

    PlanModel& model_;
    SearchSpace space_;
    double best_;
    const ProgressListener& listener_;
    SearchResult found_;
};

} // namespace

std::optional<PlanCost> evaluate_offloaded(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed,
                                           ReadySchedule& schedule, double faster_than) {
    PlanCost cost = model.evaluate(decisions, placed, schedule);
    if (cost.time >= faster_than) return std::nullopt;
    double host = std::numeric_limits<double>::infinity(); // of a rank
    for (const costs::NodeKind& node : model.cluster().kinds)
        host = std::min(host, host_share * static_cast<double>(node.host_memory.count) / node.devices);
    if (-cost.tightest().margin() > host) return std::nullopt; // what does not fit has to be there at least
    double exposed = 0;
    bool any = false;
    for (int rank = 0; rank < decisions.pipe; ++rank) {
        RankBytes& bytes = cost.ranks[static_cast<std::size_t>(rank)];
        if (bytes.margin() >= 0) continue;
        const double room = bytes.margin() + bytes.chunks();
        if (room <= 0) return std::nullopt;
        OffloadedRank step = step_of(model, decisions, placed, schedule, rank, room);
        step.host = host;
        const auto found = offload_cost(step);
        if (!found) return std::nullopt;
        any = true;
        bytes.elsewhere = -bytes.margin();
        bytes.on_host = found->on_host;
        exposed = std::max(exposed, found->exposed - found->host_update_share * cost.terms.optimizer);
    }
    if (!any) return std::nullopt;
    cost.time += exposed;
    cost.terms.offloading = exposed;
    return cost;
}

SearchResult plans_with_offload(PlanModel& model, const SearchSpace& space, double faster_than,
                                const ProgressListener& listener) {
    const bool has_hosts = std::ranges::all_of(model.cluster().kinds, [](const costs::NodeKind& node) {
        return node.host_memory.count > 0 && node.host_copy.bytes > 0;
    });
    return has_hosts ? OffloadSearch(model, space, faster_than, listener).run() : SearchResult{};
}

} // namespace tutti::planner

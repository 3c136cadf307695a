// The time of a plan: what stages cost, what a step does once, and the schedule evaluated with both.
#include "planner/evaluate/plan_model.h"

#include "base/error.h"
#include "schedule/families.h"

#include <algorithm>

namespace tutti::planner {
namespace {

// Chunks in which replicas reduce gradients as they become ready.
constexpr double reduced_at_once = double{4 << 20};

} // namespace

PlanModel::PlanModel(const BlockChain& chain, const costs::CostModel& costs, const PlannerWorkload& workload,
                     const PlannerOptions& options)
    : chain_(chain), costs_(costs), workload_(workload), options_(options),
      segments_(chain, costs, workload_, options.threads) {}

SegmentKey PlanModel::key_of(const PlanDecisions& decisions, BackwardStyle style, bool recomputed) const {
    const bool has_replicas = decisions.data * std::max(1, decisions.schedule.model_replicas) > 1;
    return {.tensor_parallel = decisions.tensor_parallel,
            .micro_batch = decisions.micro_batch,
            .style = style == BackwardStyle::early && !recomputed ? BackwardStyle::whole : style,
            .zero = decisions.zero.shards_gradients() && has_replicas ? decisions.zero : Zero{},
            .recomputed = recomputed};
}

const ChainFigures& PlanModel::chain_figures(const PlanDecisions& decisions, const PlacedRanks& placed,
                                             BackwardStyle style, bool recomputed, int kind) {
    const SegmentKey key = key_of(decisions, style, recomputed);
    if (!key.zero.shards_gradients() || decisions.schedule.model_replicas <= 1)
        return segments_.figures(key, placed.shapes, kind);
    return segments_.figures(key, placed.with_model_replicas(decisions.schedule.model_replicas), kind);
}

// Of several kinds of device the slowest counts, as all wait for it.
double PlanModel::slowdown(const PlanDecisions& decisions) const {
    return 1 + (costs_.slowdown() - 1) / decisions.pipe;
}

StageCost PlanModel::stage_cost(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style,
                                int rank, int first, int end, std::span<const int> recomputed) {
    StageCost cost;
    const bool any = !recomputed.empty(), all = static_cast<int>(recomputed.size()) == end - first;
    for (const int kind : placed.kinds[static_cast<std::size_t>(rank)]) {
        const ChainFigures& plain = chain_figures(decisions, placed, style, false, kind);
        StageFigures figures = plain.stage(first, end), again{};
        double recompute = 0;
        if (any) {
            const ChainFigures& full = chain_figures(decisions, placed, style, true, kind);
            const std::size_t part = at(style == BackwardStyle::early ? StagePart::recompute : StagePart::backward);
            const StageFigures whole = full.stage(first, end);
            again = all ? whole - figures : StageFigures{};
            for (std::size_t i = 0; i < recomputed.size() && !all; ++i) {
                const int block = recomputed[i], next = block + 1;
                again = again + (full.added(block, first) - plain.added(block, first));
                // The last sum and norm of the model, one kernel, are made again with the block before the head.
                if (decisions.tensor_parallel.ranks == 1 && next + 1 == chain_.blocks() && next < end)
                    again.slots[slotted(Region::stash)] -= plain.added(next, first).slot(Region::stash);
            }
            recompute = std::max(0.0, again.seconds[part]);
            // A block that is the first of its stage may free less than what it adds to one: some of it, never more
            // than all.
            for (std::size_t r = 0; r < slotted_count; ++r) {
                const auto [least, most] = std::minmax(figures.slots[r], whole.slots[r]);
                figures.slots[r] = std::clamp(figures.slots[r] + again.slots[r], least, most);
            }
            // A forward leaves out what only its backward would read, and that makes it again.
            for (std::size_t i = 0; i < stage_part_count; ++i)
                if (i != part) figures.seconds[i] += again.seconds[i];
            figures.transient = std::max(figures.transient, whole.transient);
            figures.workspace = std::max(figures.workspace, whole.workspace);
            for (std::size_t i = 0; i < stage_part_count; ++i) figures.exposed[i] += again.exposed[i];
        }
        for (std::size_t i = 0; i < stage_part_count; ++i)
            figures.seconds[i] += (slowdown(decisions) - 1) * (figures.seconds[i] - figures.exposed[i]);
        recompute *= slowdown(decisions);
        // Of all micro-batches alike: what the first spares is shared out among them.
        const double rounds =
            std::max(1, decisions.schedule.micro_batches / std::max(1, decisions.schedule.model_replicas));
        auto mean = [&](StagePart part) { return figures.time(part) - figures.spared[at(part)] / rounds; };
        // What is recomputed within the backward is there block by block, and no more than a moment.
        const double waiting = figures.slot(Region::stash) + figures.slot(Region::received),
                     kept = waiting + figures.slot(Region::recomputed) + 1;
        const schedule::StageCosts times{.forward = figures.time(StagePart::forward),
                                         .backward = mean(StagePart::backward),
                                         .weight_gradient = mean(StagePart::weight_gradient),
                                         .recompute = recompute,
                                         .activation = kept,
                                         .kept_after_backward = kept,
                                         .boundary = any ? waiting : 0};
        auto sum = [](const schedule::StageCosts& t) {
            return t.forward + t.backward + t.weight_gradient + t.recompute;
        };
        if (kind == placed.kinds[static_cast<std::size_t>(rank)].front() || sum(times) > sum(cost.times)) {
            cost.times = times;
            cost.exposed = {figures.exposed[at(StagePart::forward)],
                            figures.exposed[at(StagePart::backward)] + figures.exposed[at(StagePart::weight_gradient)] +
                                figures.exposed[at(StagePart::recompute)]};
            cost.figures = figures;
        }
    }
    return cost;
}

schedule::Costs PlanModel::costs_of(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style) {
    const schedule::ScheduleParameters& p = decisions.schedule;
    const int stages = decisions.stages(), model_replicas = std::max(1, p.model_replicas);
    schedule::Costs costs;
    costs.stages.clear();
    std::vector<double> boundaries;
    for (int stage = 0; stage < stages; ++stage) {
        StageCost slowest;
        for (int replica = 0; replica < model_replicas; ++replica) {
            StageCost cost = stage_cost(decisions, placed, style_in(p, stage, style),
                                        schedule::rank_of(p, replica, stage), decisions.first_block(stage),
                                        decisions.end_block(stage, chain_.blocks()), decisions.recomputed_in(stage));
            if (replica == 0 || cost.times.forward > slowest.times.forward) slowest = std::move(cost);
        }
        boundaries.push_back(slowest.figures.slot(Region::received));
        costs.stages.push_back(slowest.times);
    }
    costs.communication.clear();
    for (int replica = 0; replica < model_replicas; ++replica)
        for (int stage = 0; stage + 1 < stages; ++stage) {
            const int from = schedule::rank_of(p, replica, stage), to = schedule::rank_of(p, replica, stage + 1);
            const Bytes bytes{static_cast<std::int64_t>(boundaries[static_cast<std::size_t>(stage) + 1])};
            costs.communication.push_back(
                from == to ? 0
                           : costs_.message_seconds(bytes, placed.level(from, to), placed.senders,
                                                    placed.kinds[static_cast<std::size_t>(from)].front()));
        }
    if (costs.communication.empty()) costs.communication = {0};
    add_step_costs(decisions, placed, style, costs);
    return costs;
}

// What a step does once: reduces gradients, beneath the last backward as far as it can, and updates.
void PlanModel::add_step_costs(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style,
                               schedule::Costs& costs) {
    const schedule::ScheduleParameters& p = decisions.schedule;
    const int model_replicas = std::max(1, p.model_replicas), replica_count = decisions.data * model_replicas,
              tensor = decisions.tensor_parallel.ranks;
    const costs::GroupShape holders = placed.with_model_replicas(model_replicas).data;
    const Precision& types = workload_.precision;
    const std::int64_t gradient = size_of(types.gradients), weight = size_of(types.compute);
    const std::int64_t held = types.bytes_per_parameter();
    for (int stage = 0; stage < decisions.stages(); ++stage) {
        schedule::StageCosts& cost = costs.stages[static_cast<std::size_t>(stage)];
        const int rank = schedule::rank_of(p, 0, stage), kind = placed.kinds[static_cast<std::size_t>(rank)].front();
        const int first = decisions.first_block(stage), end = decisions.end_block(stage, chain_.blocks());
        const StageFigures figures = chain_figures(decisions, placed, style, false, kind).stage(first, end);
        const double elements = figures.elements - doubled_elements(first, end, tensor);
        const double tied = tied_elements(first, end, tensor), early = elements - tied;
        auto collective = [&](costs::Collective what, double count, std::int64_t each, const costs::GroupShape& shape) {
            return shape.size() > 1 && count > 0
                       ? costs_.collective_seconds(what, {static_cast<std::int64_t>(count) * each}, shape, kind)
                       : 0;
        };
        if (replica_count > 1 && !decisions.zero.shards_gradients()) {
            const costs::Collective what =
                !decisions.zero.shards_states() ? costs::Collective::all_reduce : costs::Collective::reduce_scatter;
            const double all = collective(what, early, gradient, holders) * costs_.contention(kind).communication;
            const double pieces = std::max(1.0, early / reduced_at_once);
            const double beneath = (p.split_backward ? cost.weight_gradient : cost.backward + cost.weight_gradient) *
                                   (pieces - 1) / pieces;
            // What goes on beneath it makes the backward slower, too.
            cost.synchronise =
                std::max(all / pieces, all - beneath) + (costs_.contention(kind).compute - 1) * std::min(all, beneath);
        }
        const double share = decisions.zero.shards_states() ? elements / replica_count : elements;
        cost.update = slowdown(decisions) * (costs_.optimizer_seconds(static_cast<std::int64_t>(share), held, kind) +
                                             costs_.norm_seconds(static_cast<std::int64_t>(share), gradient, kind));
        if (decisions.zero.shards_states() && !decisions.zero.shards_weights())
            cost.update += collective(costs::Collective::all_gather, elements, weight, holders);
        cost.update += collective(costs::Collective::all_reduce, figures.partial, gradient, placed.shapes.tensor);
        if (tied > 0 && decisions.pipe > 1) {
            costs::GroupShape ends;
            ends.factors.assign(static_cast<std::size_t>(placed.level(0, decisions.pipe - 1)) + 1, 1);
            ends.factors.back() = 2;
            cost.update += collective(costs::Collective::all_reduce, tied, gradient, ends);
        }
        if (tied > 0 && !decisions.zero.shards_gradients())
            cost.update += collective(costs::Collective::all_reduce, tied, gradient, placed.shapes.data);
    }
}

ReadySchedule* PlanModel::schedule_of(const PlanDecisions& decisions, const PlacedRanks& placed,
                                      std::unique_ptr<ReadySchedule>& owned) {
    if (!follows_costs(decisions.schedule.family)) return schedules_.find(decisions.schedule);
    try {
        PlanDecisions resolved = decisions;
        resolved.schedule = schedule::resolve(decisions.schedule);
        const schedule::Costs costs = costs_of(resolved, placed, style_of(resolved.schedule));
        owned = std::make_unique<ReadySchedule>(schedule::make_schedule(decisions.schedule, costs));
        return owned.get();
    } catch (const Error&) { // these numbers are not for it
        return nullptr;
    }
}

schedule::Costs PlanModel::evaluate_schedule(const PlanDecisions& resolved, const PlacedRanks& placed,
                                             ReadySchedule& schedule) {
    const BackwardStyle style = style_of(resolved.schedule);
    schedule::Costs costs = costs_of(resolved, placed, style);
    // A recomputation within the backward is a part of it.
    schedule::Costs timed = costs;
    for (int s = 0; s < resolved.stages(); ++s)
        if (style_in(resolved.schedule, s, style) != BackwardStyle::early) {
            schedule::StageCosts& stage = timed.stages[static_cast<std::size_t>(s)];
            stage.backward += stage.recompute;
            stage.recompute = 0;
        }
    schedule.evaluator.evaluate(timed, evaluation_);
    return costs;
}

double PlanModel::step_seconds(const PlanDecisions& decisions, const PlacedRanks& placed, ReadySchedule& schedule) {
    PlanDecisions resolved = decisions;
    resolved.schedule = schedule.schedule.parameters;
    evaluate_schedule(resolved, placed, schedule);
    return evaluation_.time;
}

PlanCost PlanModel::evaluate(const PlanDecisions& decisions, const PlacedRanks& placed, ReadySchedule& schedule) {
    PlanDecisions resolved = decisions;
    resolved.schedule = schedule.schedule.parameters;
    const BackwardStyle style = style_of(resolved.schedule);
    const schedule::Costs costs = evaluate_schedule(resolved, placed, schedule);
    PlanCost result{.time = evaluation_.time, .bubble = 0};
    const double ranks = decisions.pipe;
    const double per_replica = static_cast<double>(schedule.schedule.parameters.micro_batches) /
                               std::max(1, schedule.schedule.parameters.model_replicas);
    StepTerms& terms = result.terms;
    for (int rank = 0; rank < decisions.pipe; ++rank) {
        const schedule::RankEvaluation& one = evaluation_.ranks[static_cast<std::size_t>(rank)];
        terms.bubble += (one.idle.total() - one.idle.communication) / ranks;
        terms.communication += one.idle.communication / ranks;
        double tensor = 0, again = 0, update = 0;
        for (const StageSlots& stage : schedule.ranks[static_cast<std::size_t>(rank)]) {
            const StageCost cost =
                stage_cost(resolved, placed, style_in(resolved.schedule, stage.stage, style), rank,
                           decisions.first_block(stage.stage), decisions.end_block(stage.stage, chain_.blocks()),
                           decisions.recomputed_in(stage.stage));
            const schedule::StageCosts& times = costs.stages[static_cast<std::size_t>(stage.stage)];
            tensor += per_replica * (cost.exposed[0] + cost.exposed[1]);
            again += per_replica * times.recompute;
            update += times.update;
        }
        terms.tensor += tensor / ranks;
        terms.recompute += again / ranks;
        terms.optimizer += update / ranks;
        terms.compute += (one.busy - tensor - again - update) / ranks;
        result.ranks.push_back(memory_of(resolved, placed, schedule, style, rank));
    }
    result.bubble = result.time > 0 ? terms.bubble / result.time : 0;
    return result;
}

std::optional<PlanCost> PlanModel::evaluate(const PlanDecisions& decisions) {
    const PlacedRanks placed = place_ranks(cluster(), decisions.mesh(), decisions.layout);
    std::unique_ptr<ReadySchedule> owned;
    ReadySchedule* schedule = schedule_of(decisions, placed, owned);
    if (!schedule || schedule->schedule.parameters.stages() != decisions.stages()) return std::nullopt;
    return evaluate(decisions, placed, *schedule);
}

double PlanModel::tokens_per_second(double step_seconds) const {
    return static_cast<double>(workload_.global_batch * workload_.sequence) / step_seconds;
}

double PlanModel::utilisation(const PlanDecisions& decisions, double step_seconds) const {
    double peak = 0;
    const std::vector<costs::ClusterDevice> devices = cluster().devices();
    for (int device : devices_of(cluster(), decisions.mesh(), decisions.layout))
        peak += costs::peak_flops(
            cluster().kinds[static_cast<std::size_t>(devices[static_cast<std::size_t>(device)].kind)].device,
            workload_.precision.compute);
    return step_flops() / (step_seconds * peak);
}

} // namespace tutti::planner

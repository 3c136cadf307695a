#include "resolve/pipeline_plan.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "compile/compile.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "planner/stages/cuts.h"
#include "planner/stages/recompute_choice.h"
#include "schedule/families.h"
#include "schedule/lower.h"

#include <algorithm>
#include <map>

namespace tutti::resolve {
namespace {

// The blocks of a stage.
std::span<const Block> blocks_of(std::span<const Block> blocks, std::span<const int> cuts, std::size_t stage) {
    const std::size_t first = stage == 0 ? 0 : static_cast<std::size_t>(cuts[stage - 1]);
    const std::size_t end = stage < cuts.size() ? static_cast<std::size_t>(cuts[stage]) : blocks.size();
    return blocks.subspan(first, end - first);
}

// What a stage recomputes, as its schedule is told.
struct StageRecomputation {
    double work = 0;                                // the share of its forward that is computed a second time
    std::optional<planner::KeptActivations> kept{}; // none: as if all of it were
};

// Of a micro-batch, in seconds of an average device, and bytes. Gradients of inputs and of weights take a forward each.
schedule::Costs stage_costs(std::span<const Block> blocks, std::span<const int> cuts,
                            std::span<const StageRecomputation> again) {
    schedule::Costs costs;
    costs.stages.clear();
    for (std::size_t stage = 0; stage <= cuts.size(); ++stage) {
        double forward = 0;
        Bytes activations;
        const std::span<const Block> own = blocks_of(blocks, cuts, stage);
        for (const Block& block : own) {
            forward += planner::time_of(block, {}).count / 3;
            activations += block.activations;
        }
        Bytes waiting = own.front().boundary;
        if (const auto& kept = again[stage].kept) {
            waiting = kept->waiting;
            activations = kept->waiting + kept->active;
        }
        costs.stages.push_back({.forward = forward,
                                .backward = forward,
                                .weight_gradient = forward,
                                .recompute = again[stage].work * forward,
                                .activation = static_cast<double>(activations.count),
                                .kept_after_backward = static_cast<double>(activations.count),
                                .boundary = static_cast<double>(waiting.count)});
    }
    return costs;
}

planner::RecomputeRule rule_of(const run::RecomputeAmount& amount) {
    using planner::Recomputing;
    if (amount.automatic) return {.which = Recomputing::as_needed};
    if (amount.share <= 0) return {.which = Recomputing::none};
    if (amount.share >= 1) return {.which = Recomputing::all};
    return {.share = amount.share};
}

// Per stage, the most micro-batches between their forward and their backward.
std::vector<int> in_flight(const schedule::Schedule& schedule, const schedule::Costs& costs) {
    std::vector<int> most(costs.stages.size(), 1);
    for (const Program& program : schedule::lower(schedule, costs))
        for (const LocalStage& stage : program.stages) {
            int& count = most[static_cast<std::size_t>(stage.stage)];
            count = std::max(count, static_cast<int>(stage.slots[slotted(Region::stash)]));
        }
    return most;
}

// Weights, gradients and optimizer states of a stage's share of the tensor axis.
Bytes model_bytes(std::span<const Block> blocks, const Plan& plan) {
    std::int64_t elements = 0;
    for (const Block& block : blocks) elements += block.parameters;
    const Precision& types = plan.precision;
    const std::int64_t each = size_of(types.compute) + size_of(types.gradients) + 2 * size_of(types.moments) +
                              (types.has_master() ? size_of(types.master) : 0);
    return {elements * each / plan.mesh.tensor};
}

std::vector<planner::StageActivations> stage_activations(const Graph& forward, std::span<const Block> blocks,
                                                         const Plan& plan, const std::vector<int>& flights,
                                                         Bytes memory) {
    std::vector<planner::StageActivations> stages;
    for (std::size_t stage = 0; stage <= plan.cuts.size(); ++stage) {
        const Graph step = compile::finished(
            compile::differentiated(compile::stage_graph(forward, blocks, plan.cuts, static_cast<int>(stage)),
                                    plan.mesh.tensor == 1),
            {});
        Bytes model = model_bytes(blocks_of(blocks, plan.cuts, stage), plan);
        if (plan.device_memory.count > 0) model = std::min(model, Bytes{memory.count / 2}); // the rest may be away
        planner::StageActivations one{.budget = memory,
                                      .fixed = model,
                                      .in_flight = flights[stage],
                                      .blocks = compile::measure_activations(step)};
        for (compile::BlockActivations& block : one.blocks) {
            block.kept.count /= plan.mesh.tensor;
            block.boundary.count /= plan.mesh.tensor;
        }
        stages.push_back(std::move(one));
    }
    return stages;
}

// The share of a stage's work that recomputing these blocks does again.
double recomputed_share(const planner::StageActivations& stage, std::span<const int> recomputed,
                        std::span<const Block> blocks) {
    double again = 0, all = 0;
    for (const Block& block : blocks) all += block.forward.flops.count;
    for (const compile::BlockActivations& block : stage.blocks)
        if (std::ranges::find(recomputed, block.block) != recomputed.end()) again += block.recomputed.count;
    return all > 0 ? again / all : 0;
}

// Blocks that are offloaded: all, or of those that would be recomputed (where none would be: of all) the ones whose
// copies take less time than that. They are recomputed no more.
std::vector<std::vector<int>> choose_offload(std::span<const planner::StageActivations> stages,
                                             const OffloadChoice& choice, std::vector<std::vector<int>>& recompute) {
    std::vector<std::vector<int>> chosen(stages.size());
    const bool any = std::ranges::any_of(recompute, [](const std::vector<int>& list) { return !list.empty(); });
    for (std::size_t s = 0; s < stages.size(); ++s)
        for (const compile::BlockActivations& block : stages[s].blocks) {
            if (choice.kind == run::ActivationOffload::automatic) {
                const bool recomputed = any && std::ranges::find(recompute[s], block.block) != recompute[s].end();
                const double copied = static_cast<double>((block.kept - block.boundary).count) / choice.copies;
                if ((any && !recomputed) || copied >= block.recomputed.count / choice.flops) continue;
                if (recomputed) std::erase(recompute[s], block.block);
            }
            chosen[s].push_back(block.block);
        }
    return chosen;
}

// Every stage has a block at least.
void check_stages(const schedule::ScheduleParameters& parameters, int blocks) {
    const int stages = parameters.stages(), per_rank = stages / parameters.ranks;
    if (stages <= blocks) return;
    std::string advice;
    if (per_rank == 1)
        advice = fmt::format("the pipe axis can have at most {}", counted(blocks, "rank"));
    else if (per_rank <= blocks)
        advice = fmt::format("with {} per rank the pipe axis can have at most {}", counted(per_rank, "stage"),
                             counted(blocks / per_rank, "rank"));
    else
        advice = fmt::format("a rank can have at most {}", counted(std::max(1, blocks / parameters.ranks), "stage"));
    fail("the model has {}, too few for {}: {}", counted(blocks, "block"), counted(stages, "stage"), advice);
}

bool recomputes_early(const schedule::ScheduleParameters& parameters) {
    return std::ranges::find(parameters.recompute, schedule::Recompute::early) != parameters.recompute.end();
}

} // namespace

void plan_pipeline(Plan& plan, const Graph& forward, const std::optional<schedule::ScheduleParameters>& asked,
                   const run::RecomputeAmount& recompute, Bytes memory, const OffloadChoice& offload) {
    const std::vector<Block> blocks = find_blocks(forward);
    const schedule::ScheduleParameters parameters = schedule::resolve(
        asked.value_or(schedule::ScheduleParameters{.micro_batches = narrow<int>(plan.micro_batches())}));
    check_stages(parameters, narrow<int>(blocks.size()));
    plan.cuts = planner::balance(blocks, parameters.stages());
    std::vector<StageRecomputation> again(static_cast<std::size_t>(plan.stages()));
    schedule::Costs costs = stage_costs(blocks, plan.cuts, again);
    schedule::Schedule schedule = schedule::make_schedule(parameters, costs);
    const planner::RecomputeRule rule = rule_of(recompute);
    const bool recomputes = rule.which != planner::Recomputing::none;
    if (recomputes || offload.kind != run::ActivationOffload::none) {
        // When a family recomputes shows where all stages do.
        const std::vector<StageRecomputation> all(again.size(), {.work = 1});
        const schedule::Costs with_all = stage_costs(blocks, plan.cuts, all);
        const schedule::Recompute when = recomputes_early(schedule::make_schedule(parameters, with_all).parameters)
                                             ? schedule::Recompute::early
                                             : schedule::Recompute::on_gradient;
        const auto stages = stage_activations(forward, blocks, plan, in_flight(schedule, costs), memory);
        std::vector<std::vector<int>> chosen = planner::choose_recompute(stages, rule, when);
        if (offload.kind != run::ActivationOffload::none) plan.offload = choose_offload(stages, offload, chosen);
        if (!recomputes) chosen.clear();
        plan.recompute = chosen;
        chosen.resize(again.size());
        for (std::size_t stage = 0; stage < again.size(); ++stage) {
            again[stage].work = recomputed_share(stages[stage], chosen[stage], blocks_of(blocks, plan.cuts, stage));
            if (again[stage].work > 0) again[stage].kept = planner::kept_by(stages[stage], chosen[stage], when);
        }
        costs = stage_costs(blocks, plan.cuts, again);
        schedule = schedule::make_schedule(parameters, costs);
    }
    if (asked) plan.schedule = PlannedSchedule{schedule, costs};
}

} // namespace tutti::resolve

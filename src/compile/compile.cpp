#include "compile/compile.h"

#include "base/checked.h"
#include "base/error.h"
#include "compile/graphs/rank_graphs.h"
#include "compile/graphs/stages.h"
#include "compile/graphs/step_graph.h"
#include "compile/outboxes.h"
#include "compile/step_code.h"
#include "compile/task_order.h"
#include "memory/liveness.h"
#include "program/over_weights.h"
#include "program/slots.h"
#include "program/update_places.h"
#include "schedule/lower.h"

#include <algorithm>
#include <set>

namespace tutti::compile {
namespace {

std::size_t at(Region region) { return static_cast<std::size_t>(region); }

class RankCompiler {
  public:
    RankCompiler(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place,
                 const schedule::Schedule& schedule, RankGroups& groups, const Ownership& ownership, bool trains)
        : stages_(stages), plan_(plan), schedule_(schedule), groups_(groups), ownership_(ownership), trains_(trains),
          mesh_place_(plan.mesh.place_of(place.rank)) {
        const Precision& types = plan.precision;
        program_.trains = trains;
        program_.micro_batches = schedule.parameters.micro_batches;
        program_.micro_batch_samples = plan.workload.micro_batch;
        program_.first_sample = mesh_place_.data * program_.micro_batches * program_.micro_batch_samples;
        program_.has_master = types.has_master();
        program_.chunk_dtypes = {types.compute, types.gradients, types.master, types.moments, types.moments};
        for (const memory::Chunk& chunk : ownership.layout.chunks) program_.chunk_elements.push_back(chunk.elements);
        program_.owned = ownership.owned_ranges(plan.zero);
        for (const RankStage& stage : stages)
            program_.stages.push_back({.stage = stage.stage, .replica = stage.replica});
    }

    Program run() {
        lay_out_shared();
        for (std::size_t s = 0; s < stages_.size(); ++s) compile(s);
        write_tasks();
        program_.groups = groups_.specs();
        assign_slots(program_, outboxes_);
        wait_for_outboxes(program_);
        Bytes& transient = program_.sizes[at(Region::transient)];
        for (const Segment& segment : program_.segments) transient = std::max(transient, segment.transient);
        verify(program_);
        return std::move(program_);
    }

  private:
    // Tokens and results, which all stages of the rank share.
    void lay_out_shared() {
        Bytes& batch = program_.sizes[at(Region::batch)];
        DType loss = DType::float32;
        for (const RankStage& stage : stages_) {
            for (ValueId input : stage.graph.inputs()) {
                const Value& value = stage.graph.value(input);
                const bool is_message = value.name.starts_with(sharding::stage_input) ||
                                        value.name.starts_with(sharding::stage_output_gradient);
                if (is_message || !options_.batch.try_emplace(value.name, batch.count).second) continue;
                batch.count = round_up(batch.count + value.type.bytes().count, memory::buffer_alignment);
            }
            if (const Output* output = stage.graph.output("loss")) {
                loss = stage.graph.type(output->value).dtype;
                has_loss_ = true;
            }
        }
        results_ = lay_out_results(loss, ownership_.layout.chunks.size());
        program_.sizes[at(Region::results)] = results_.size;
        options_.trains = trains_;
        options_.split_backward = schedule::splits_backward(schedule_);
        options_.zero = plan_.zero;
        options_.precision = plan_.precision;
        options_.loss = results_.loss;
        if (plan_.device_memory.count > 0) options_.squares = results_.squares;
        if (trains_ && plan_.updates == offload::UpdateTime::backward)
            options_.early = {results_, plan_.mesh.ranks() == 1};
        const sharding::OperatorStrategies strategies = operator_strategies_of(plan_);
        for (std::size_t a = 0; a < strategies.axes.size(); ++a)
            options_.groups[sharding::axis_name(strategies, a)] = groups_.tensor(strategies.axes, a);
    }

    void compile(std::size_t s) {
        options_.constants = program_.sizes[at(Region::constants)].count;
        if (trains_ && !plan_.offload.empty())
            options_.offloaded = plan_.offload[static_cast<std::size_t>(stages_[s].stage)];
        StageCode code = compile_stage(stages_[s].graph, ownership_, options_);
        program_.sizes[at(Region::constants)] += code.constants;
        program_.stages[s].sizes = code.slots;
        program_.stages[s].pieces = code.pieces;
        if (const Segment& setup = code.segments[static_cast<std::size_t>(Part::setup)]; !setup.instructions.empty())
            program_.setup.push_back({.kind = TaskKind::setup,
                                      .stage = stages_[s].stage,
                                      .segment = add_segment(setup),
                                      .local = narrow<std::int32_t>(s)});
        for (const NamedBuffer& input : code.inputs)
            if (std::ranges::find(program_.inputs, input.name, &NamedBuffer::name) == program_.inputs.end())
                program_.inputs.push_back(input);
        program_.outputs.insert(program_.outputs.end(), code.outputs.begin(), code.outputs.end());
        code_.push_back(std::move(code));
    }

    std::int32_t add_segment(Segment segment) {
        program_.segments.push_back(std::move(segment));
        return narrow<std::int32_t>(program_.segments.size() - 1);
    }

    // A task for the whole step, where there is anything for it to do.
    void add_task(Segment segment) {
        if (segment.instructions.empty()) return;
        const TaskKind kind = segment.kind;
        program_.step.push_back({.kind = kind, .segment = add_segment(std::move(segment))});
    }

    void write_tasks() {
        std::set<std::int32_t> squared, updated;
        for (const StageCode& code : code_) {
            updated.insert(code.updated.begin(), code.updated.end());
            for (const Segment& segment : code.segments)
                for (const Instruction& instruction : segment.instructions)
                    if (instruction.kind == InstructionKind::squared_norm)
                        squared.insert(instruction.inputs[0].address.chunk);
        }
        const StepCodeOptions once{.precision = plan_.precision,
                                   .zero = plan_.zero,
                                   .squared = std::move(squared),
                                   .updated = std::move(updated),
                                   .has_loss = has_loss_ && mesh_place_.tensor == 0,
                                   .world = groups_.world()};
        if (trains_) add_task(clear_segment(ownership_, once));
        if (!program_.inputs.empty())
            for (std::int32_t m = 0; m < program_.micro_batches; ++m)
                program_.step.push_back({.kind = TaskKind::load, .micro_batch = m});
        const std::vector<Program> skeletons =
            schedule::lower(schedule_, plan_.schedule && trains_
                                           ? plan_.schedule->costs
                                           : schedule::uniform_costs(schedule_.parameters, schedule::StageCosts{}));
        const auto pipe = static_cast<std::size_t>(mesh_place_.pipe);
        write_pipeline(program_, code_, skeletons[pipe], groups_.pipe());
        // The skeleton numbers stages as they come.
        const std::vector<std::int32_t> outboxes = outbox_sizes(skeletons)[pipe];
        for (const LocalStage& stage : program_.stages)
            for (std::size_t i = 0; i < outboxes.size(); ++i)
                if (skeletons[pipe].stages[i].stage == stage.stage &&
                    skeletons[pipe].stages[i].replica == stage.replica)
                    outboxes_.push_back(outboxes[i]);
        if (!trains_) return;
        add_task(reduce_segment(ownership_, once));
        add_task(norm_segment(ownership_, results_, once));
        add_task(update_segment(ownership_, once));
    }

    std::span<const RankStage> stages_;
    const Plan& plan_;
    const schedule::Schedule& schedule_;
    RankGroups& groups_;
    const Ownership& ownership_;
    bool trains_;
    sharding::MeshPlace mesh_place_;
    bool has_loss_ = false;
    Program program_;
    StageCodeOptions options_;
    ResultLayout results_;
    std::vector<StageCode> code_;
    std::vector<std::int32_t> outboxes_; // per stage of the rank
};

// Wherever the program allows it.
void lay_gradients_over_weights(Program& program, const memory::ChunkLayout& layout, const OperatorSet& operators) {
    if (!program.has_master || program.chunk_dtypes[at(Region::gradients)] != program.chunk_dtypes[at(Region::weights)])
        return;
    std::vector<std::vector<Range>> tensors;
    for (const memory::Chunk& chunk : layout.chunks) {
        tensors.emplace_back();
        for (std::int32_t stored : chunk.tensors) tensors.back().push_back(layout.tensor(stored).range());
    }
    put_over_weights(program, find_over_weights(program, tensors, operators));
    verify(program);
}

// Where a plan's residency wants them.
void place_updates(Program& program, const offload::PlannedResidency& residency) {
    const UpdatePlaces places(program);
    for (std::int32_t chunk : residency.host_updates)
        if (!std::ranges::binary_search(places.chunks(), chunk))
            fail("the plan's residency has the host update chunk {}, and this rank updates no such chunk", chunk);
    places.place({residency.host_updates.begin(), residency.host_updates.end()}, residency.later_updates);
    verify(program);
}

// Forwards alone, of one micro-batch for every replica. All ranks go through the stages in the same order, so that
// those who own one together gather its weights together.
schedule::Schedule forward_schedule(const schedule::Schedule& training) {
    schedule::Schedule schedule{.parameters = training.parameters};
    schedule.parameters.micro_batches = training.parameters.model_replicas;
    schedule.first.push_back(0);
    for (int r = 0; r < training.ranks(); ++r) {
        std::set<std::pair<std::uint16_t, std::uint16_t>> stages;
        for (const schedule::ScheduledTask& task : training.rank(r)) stages.insert({task.stage, task.replica});
        for (const auto& [stage, replica] : stages)
            schedule.tasks.push_back(
                {.work = schedule::Work::forward, .replica = replica, .stage = stage, .micro_batch = replica});
        schedule.first.push_back(narrow<std::int32_t>(schedule.tasks.size()));
    }
    return schedule;
}

std::vector<RankStage> one_stage(const Graph& graph) { return {{.stage = 0, .replica = 0, .graph = graph}}; }

} // namespace

Compiled compile(const Graph& forward, const Plan& plan, int rank) {
    const RankGraphs graphs = training_graphs(forward, plan, rank);
    Compiled result = compile_training(graphs.stages, plan, graphs.place);
    for (const RankStage& stage : graphs.stages)
        if (stage.logits) result.logits = {*stage.logits, stage.stage, stage.replica};
    return result;
}

Program compile_evaluation(const Graph& forward, const Plan& plan, int rank, const Ownership& ownership) {
    const RankGraphs graphs = forward_graphs(forward, plan, rank);
    return compile_forward(graphs.stages, plan, graphs.place, ownership);
}

Compiled compile_training(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place) {
    check(plan);
    const schedule::Schedule schedule = schedule_of(plan);
    RankGroups groups(plan.mesh, schedule.parameters, place.rank);
    Compiled result;
    result.ownership =
        find_ownership(stages, place.ties, groups, operator_strategies_of(plan).axes, plan.chunk_elements, plan.zero);
    result.program = RankCompiler(stages, plan, place, schedule, groups, result.ownership, true).run();
    if (plan.gradients_over_weights)
        lay_gradients_over_weights(result.program, result.ownership.layout, stages.front().graph.operators());
    if (const offload::PlannedResidency* residency = residency_of(plan, place.rank))
        place_updates(result.program, *residency);
    return result;
}

Program compile_forward(std::span<const RankStage> stages, const Plan& plan, const RankPlace& place,
                        const Ownership& ownership) {
    check(plan);
    for (const RankStage& stage : stages) {
        const std::vector<std::int32_t> tensors = ownership.tensors_of(stage.graph);
        for (std::size_t i = 0; i < tensors.size(); ++i)
            TUTTI_CHECK(ownership.tensors[static_cast<std::size_t>(tensors[i])].slice == stage.slice(i),
                        "{} is owned otherwise for training", stage.graph.stored()[i].name);
    }
    const schedule::Schedule training = schedule_of(plan), schedule = forward_schedule(training);
    RankGroups groups(plan.mesh, training.parameters, place.rank, ownership.groups);
    return RankCompiler(stages, plan, place, schedule, groups, ownership, false).run();
}

Compiled compile_training(const Graph& graph, const Plan& plan) {
    return compile_training(one_stage(graph), plan, RankPlace{});
}

Program compile_forward(const Graph& graph, const Plan& plan, const Ownership& ownership) {
    return compile_forward(one_stage(graph), plan, RankPlace{}, ownership);
}

Ownership own_all(const Graph& graph, const Plan& plan) {
    RankGroups groups(plan.mesh, schedule_of(plan).parameters, 0);
    return find_ownership(one_stage(graph), {}, groups, operator_strategies_of(plan).axes, plan.chunk_elements,
                          plan.zero);
}

} // namespace tutti::compile

#include "train/session.h"

#include "backend/absent_gpu.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "compile/graphs/rank_graphs.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "graph/passes.h"
#include "models/checkpoint.h"
#include "ops/operators.h"
#include "profiling/kernel_speed.h"
#include "program/collective_order.h"
#include "program/over_weights.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "simulate/outline.h"
#include "train/rank_offload.h"

#include <algorithm>
#include <array>

namespace tutti::train {
namespace {

// With two pipe ranks, of as many ranks where that is possible.
sharding::Mesh with_pipe(sharding::Mesh mesh) {
    mesh.pipe = 2;
    if (mesh.data % 2 == 0) mesh.data /= 2;
    return mesh;
}

// Settings that are allowed and yet not what anyone wants.
std::vector<std::string> doubts_about(const run::RunConfig& config, const Plan& plan, const models::ModelFacts& facts) {
    std::vector<std::string> doubts;
    if (config.warmup > config.steps)
        doubts.push_back(fmt::format("warmup is {} and steps is {}: the learning rate never rises to lr, which is {}",
                                     config.warmup, config.steps, config.lr));
    if (config.mask_token >= 0 && facts.causal)
        doubts.push_back(fmt::format("mask_token is {} and does nothing: {} is a causal model, so nothing is masked",
                                     config.mask_token, facts.architecture));
    if (!config.schedule.empty() && plan.mesh.pipe == 1 && config.stages_per_rank <= 1 && config.copies <= 1 &&
        config.in_flight == 0)
        doubts.push_back(fmt::format("schedule is {}, and there is no pipeline for it: the mesh {} has one pipe rank, "
                                     "which holds the whole model; --mesh {} would make one",
                                     config.schedule, sharding::to_string(plan.mesh),
                                     sharding::to_string(with_pipe(plan.mesh))));
    if (plan.zero.shards_states() && plan.mesh.data == 1 && schedule_of(plan).parameters.copies == 1)
        doubts.push_back(fmt::format("zero is {} and does nothing: it spreads memory over the data axis, and there the "
                                     "mesh {} has one rank",
                                     config.zero, sharding::to_string(run::mesh_of(config))));
    return doubts;
}

// A dump holds the logits, so they have to be there.
FusionOptions fusion_of(const run::RunConfig& config) {
    return {.norm_weights = !config.split_backward, .head = config.dump_step0.empty()};
}

formats::TensorStore open_weights(const fs::path& folder) {
    try {
        return formats::TensorStore(folder);
    } catch (const Error& error) {
        if (formats::TensorStore::is_in(folder)) throw;
        fail("{}; --from-scratch begins with new weights", error.what());
    }
}

// That of the run; for a dry run, one that need not be here.
std::unique_ptr<backend::Device> open_device_of(const run::RunConfig& config, const comm::World& world) {
    if (!config.gpu.empty()) return backend::make_absent_gpu(config.gpu, costs::find_device_preset(config.gpu)->memory);
    try {
        return devices::open_device(config.device, config.threads, run::local_rank_of(config, world));
    } catch (const Error& error) {
        if (config.device != "cuda" || !config.dry_run) throw;
        fail("{}. The memory table of a GPU that is not here is shown by --dry-run --gpu NAME, as in --gpu h200",
             error.what());
    }
}

run::MemoryTable chunks_and_activations(const Program& program) {
    auto region = [&](Region r) { return program.sizes[static_cast<std::size_t>(r)]; };
    run::MemoryTable table;
    table.weights = chunk_bytes(program, Region::weights);
    table.gradients = chunk_bytes(program, Region::gradients);
    table.over_weights = over_weights_bytes(program);
    table.master = chunk_bytes(program, Region::master);
    table.moments = chunk_bytes(program, Region::moments1) + chunk_bytes(program, Region::moments2);
    table.activations = region(Region::transient);
    for (Region slots :
         {Region::received, Region::stash, Region::recomputed, Region::returned, Region::deferred, Region::outbox})
        table.activations += slot_bytes(program, slots);
    return table;
}

} // namespace

Session::Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given,
                 const offload::SpeedTable* speeds)
    : groups_(world), fusion_(fusion_of(config)), source_(resolve::open_planned_model(config)),
      data_(open_data(config, source_)), device_(open_device_of(config, world)),
      links_(
          runtime::link_devices(groups_, *device_, [&](const std::string& sentence) { listener.warning(sentence); })),
      has_weights_(!config.from_scratch && !source_.folder().empty()), disk_(config.disk), speeds_(speeds) {
    if (device_->memory()) own_host_ = devices::open_device("cpu", config.threads);
    host_ = own_host_ ? own_host_.get() : device_.get();
    for (const std::string& warning : source_.warnings()) listener.warning(warning);
    for (const std::string& warning : data_.warnings) listener.warning(warning);
    if (!config.gpu.empty() && config.gpu != "h100" && config.gpu != "h200")
        listener.warning(fmt::format("Tutti's CUDA kernels are built for Hopper GPUs, h100 and h200: the table is what "
                                     "a run would take on {}, but it would not start there",
                                     config.gpu));
    devices::check_computes(*device_, config.dtype);
    const std::int64_t micro_batch = run::micro_batch_of(config, data_.global_batch);
    models::Model model = source_.build({micro_batch, data_.sequence, config.dtype});
    const auto own = device_->memory();
    const Bytes usable = own ? own->total : Bytes{machine_memory().count / std::max(1, world.size())};
    const resolve::OffloadChoice offload =
        given || !config.plan.empty() ? resolve::OffloadChoice{} : offload_choice(config, model, listener);
    plan_ = given ? *given : resolve::make_plan(config, {data_.sequence, data_.global_batch}, model, usable, offload);
    if (!config.over_weights || !config.dump_step0.empty()) plan_.gradients_over_weights = false; // a dump holds them
    if (plan_.device_memory.count > 0) links_.reset(); // chunks move away when the host knows that they were exchanged
    for (const std::string& doubt : doubts_about(config, plan_, source_.facts())) listener.warning(doubt);
    if (plan_.sub_pipeline) model = build(plan_);
    if (has_weights_)
        for (const std::string& warning : models::check_weights(source_, model, open_weights(source_.folder())))
            listener.warning(warning);
    initialisation_ = model.initialisation;
    stored_.assign(model.graph.stored().begin(), model.graph.stored().end());
    if (device_->asynchronous()) listener.waiting("preparing kernels");
    // A device with memory of its own gives of it what it can to the logits of some rows at a time: the more rows, the
    // better their products fill it.
    if (const auto memory = device_->memory()) {
        for (int share : {16, 64, 256}) {
            fusion_.head_logits = {memory->total.count / share};
            compile(model, listener);
            if (memory_.fits()) break;
        }
    } else {
        compile(model, listener);
    }
}

models::Model Session::build(const Plan& plan) const {
    const std::int64_t micro_batch = plan.workload.micro_batch;
    return source_.build(
        {plan.sub_pipeline ? micro_batch / 2 : micro_batch, plan.workload.sequence, plan.precision.compute});
}

void Session::compile(const models::Model& model, run::TrainListener& listener) {
    executor_.reset();
    evaluator_.reset();
    const compile::RankGraphs graphs = compile::training_graphs(model.graph, plan_, rank(), fusion_);
    for (const compile::RankStage& stage : graphs.stages)
        if (stage.logits) logits_ = {*stage.logits, stage.stage, stage.copy};
    compiled_.emplace(compile::compile_training(graphs.stages, plan_, graphs.place));
    executor_ = std::make_unique<runtime::Executor>(compiled_->program, *device_, groups_, links_.get());
    if (data_.evaluation) compile_evaluation();
    check_collective_orders(comm::gather_texts(groups_.world().all(), collective_orders(compiled_->program)));
    if (plan_.device_memory.count > 0) plan_residences(listener);
    measure();
}

void Session::compile_evaluation() {
    const models::Model model =
        source_.build({plan_.workload.micro_batch, plan_.workload.sequence, plan_.precision.compute});
    const compile::RankGraphs graphs = compile::forward_graphs(remove_dropout(model.graph), plan_, rank());
    evaluation_.emplace(compile::compile_forward(graphs.stages, plan_, graphs.place, compiled_->holdings));
    evaluator_ = std::make_unique<runtime::Executor>(*evaluation_, *device_, groups_, links_.get());
}

memory::Holding Session::holding() const {
    memory::Holding all = compiled_->holdings.holding(plan_.zero);
    all.held = compiled_->program.held; // gradients may lie over weights
    return all;
}

offload::ModelData Session::model_data(std::byte* memory) const {
    return {*device_, compiled_->program, compiled_->holdings.chunks, holding(), memory};
}

offload::ModelData Session::model_data(const offload::Homes& homes) const {
    return {*device_, compiled_->program, compiled_->holdings.chunks, holding(), homes};
}

profiling::OffloadTiming& Session::timing(DType compute, Bytes room, run::TrainListener& listener) {
    if (!timing_) {
        if (!speeds_) listener.waiting("timing kernels and copies, to plan which model data is where");
        timing_.emplace(*device_, *host_, groups_.world(), compute, room, speeds_);
    }
    return *timing_;
}

resolve::OffloadChoice Session::offload_choice(const run::RunConfig& config, const models::Model& model,
                                               run::TrainListener& listener) {
    resolve::OffloadChoice choice{.kind = config.offload_activations};
    if (choice.kind != run::ActivationOffload::automatic) return choice;
    // The run will take weights, gradients and moments at least.
    Bytes tensors;
    for (const StoredTensor& tensor : model.graph.stored()) tensors += tensor.type.bytes();
    const profiling::OffloadTiming& speeds =
        timing(config.dtype, Bytes{4 * tensors.count / groups_.world().size()}, listener);
    choice.copies = speeds.copied_bytes();
    choice.flops = speeds.flops();
    return choice;
}

void Session::plan_residences(run::TrainListener& listener) {
    offload_.reset();
    const Bytes all = offload::model_data_bytes(compiled_->program, holding());
    const bool fits = piece_bytes(compiled_->program).count == 0 && all + scratch() <= plan_.device_memory;
    comm::World& world = groups_.world();
    if (std::ranges::min(comm::gather_values(world.all(), static_cast<char>(fits))) != 0) return;
    profiling::OffloadTiming& speeds = timing(plan_.precision.compute, all, listener);
    offload::OffloadSpeed speed = speeds.of(compiled_->program, plan_.precision, all);
    if (!disk_.empty())
        if (const std::string why = speeds.time_disk(disk_, all, speed); !why.empty())
            listener.warning("the disk could not be timed: " + why);
    offload_ = plan_with_others({.compiled = *compiled_,
                                 .evaluation = evaluation_ ? &*evaluation_ : nullptr,
                                 .plan = plan_,
                                 .device = *device_,
                                 .scratch = scratch(),
                                 .has_disk = !disk_.empty(),
                                 .fits = fits},
                                world, speed);
    if (fits) return;
    executor_ = std::make_unique<runtime::Executor>(compiled_->program, *device_, groups_, links_.get(), host_);
}

Bytes Session::chunk_memory() const {
    return offload_ ? offload_->device : offload::model_data_bytes(compiled_->program, holding());
}

Bytes Session::scratch() const { return std::max(executor_->scratch(), evaluator_ ? evaluator_->scratch() : Bytes{}); }

Bytes Session::device_memory() const { return chunk_memory() + scratch(); }

std::byte* Session::scratch_in(const backend::Arena& memory) const { return memory.data() + chunk_memory().count; }

void Session::measure() {
    memory_ = chunks_and_activations(compiled_->program);
    memory_.workspace = executor_->workspace();
    memory_.limit = plan_.device_memory;
    if (offload_) {
        memory_.limited = true;
        memory_.offloaded = piece_bytes(compiled_->program);
        memory_.on_device = offload_->device;
        memory_.on_host = offload_->homes.memory();
        memory_.on_disk = offload_->homes.disk;
    }
    memory_.buffers = device_memory() - memory_.arena(); // what is left: so the table is the arena, to the byte
    if (const auto device = device_->memory()) {
        memory_.capacity = device->total;
        memory_.libraries = device->total - device->free;
    } else {
        memory_.libraries = resident_memory() + run::first_step_growth + room_of_groups();
    }
}

Bytes Session::room_of_groups() const {
    Bytes room; // of holders, who exchange chunks, those of one stage after those of another; all else is small
    for (const GroupSpec& group : compiled_->program.groups)
        if (group.name.starts_with("holders"))
            room = std::max(room, groups_.world().room_of_group(static_cast<int>(group.members.size())));
    return room;
}

void Session::share_libraries() {
    comm::World& world = groups_.world();
    if (!world.shares_process() || device_->memory()) return;
    comm::barrier(world.all()); // all have prepared what they will run ...
    const Bytes libraries = resident_memory();
    comm::barrier(world.all()); // ... and none has gone on
    memory_.libraries = Bytes{libraries.count / world.size()} + run::first_step_growth + room_of_groups();
}

run::MemoryTable Session::memory_of(const Plan& plan) const {
    const compile::RankGraphs graphs = compile::training_graphs(build(plan).graph, plan, rank(), fusion_);
    run::MemoryTable table =
        chunks_and_activations(compile::compile_training(graphs.stages, plan, graphs.place).program);
    table.workspace = memory_.workspace;
    table.buffers = memory_.buffers;
    table.libraries = memory_.libraries;
    table.capacity = memory_.capacity;
    return table;
}

std::optional<Prediction> Session::prediction() const {
    if (plan_.predicted || !offload_) return plan_.predicted;
    return Prediction{
        .step = {offload_->training.residency.seconds},
        .memory = std::vector<Bytes>(static_cast<std::size_t>(plan_.mesh.pipe), memory_.total() - memory_.libraries)};
}

double Session::flops_per_step() const {
    double flops = 0;
    for (const Task& task : compiled_->program.step)
        if (task.segment >= 0) flops += compiled_->program.segments[static_cast<std::size_t>(task.segment)].flops;
    return flops;
}

} // namespace tutti::train

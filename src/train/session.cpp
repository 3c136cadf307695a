#include "train/session.h"

#include "backend/absent_gpu.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "models/checkpoint.h"
#include "ops/operators.h"
#include "profiling/kernel_speed.h"
#include "resolve/open_decisions.h"
#include "resolve/run_plan.h"
#include "run/layout.h"
#include "simulate/outline.h"

#include <algorithm>
#include <array>
#include <functional>

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
    if (!config.schedule.empty() && plan.mesh.pipe == 1 && config.stages_per_rank <= 1 && config.model_replicas <= 1 &&
        config.in_flight == 0)
        doubts.push_back(fmt::format("schedule is {}, and there is no pipeline for it: the mesh {} has one pipe rank, "
                                     "which holds the whole model; --mesh {} would make one",
                                     config.schedule, sharding::to_string(plan.mesh),
                                     sharding::to_string(with_pipe(plan.mesh))));
    if (plan.zero.shards_states() && plan.mesh.data == 1 && schedule_of(plan).parameters.copies == 1)
        doubts.push_back(fmt::format("zero is {} and does nothing: it spreads memory over the data axis, and there the "
                                     "mesh {} has one rank",
                                     config.zero.stage(), sharding::to_string(run::mesh_of(config))));
    return doubts;
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

} // namespace

Session::Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given,
                 const offload::SpeedTable* speeds)
    : Session(config, listener, world, resolve::followed_plan(config, given), speeds) {}

Session::Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world,
                 const std::optional<Plan>& followed, const offload::SpeedTable* speeds)
    : groups_(world), source_(resolve::open_planned_model(config, followed ? &*followed : nullptr)),
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
    devices::check_computes(*device_, config.precision.compute);
    models::Model model =
        source_.build({run::micro_batch_of(config, data_.global_batch), data_.sequence, config.precision.compute});
    plan_ = plan_of(config, model, followed, listener);
    if (plan_.device_memory.count > 0) links_.reset(); // chunks move away when the host knows that they were exchanged
    for (const std::string& doubt : doubts_about(config, plan_, source_.facts())) listener.warning(doubt);
    if (plan_.sub_pipeline) model = resolve::build(source_, plan_);
    if (has_weights_)
        for (const std::string& warning : models::check_weights(source_, model, open_weights(source_.folder())))
            listener.warning(warning);
    initialisation_ = model.initialisation;
    stored_.assign(model.graph.stored().begin(), model.graph.stored().end());
    if (device_->asynchronous()) listener.waiting("preparing kernels");
    resolve(config, listener);
}

Plan Session::plan_of(const run::RunConfig& config, const models::Model& model, const std::optional<Plan>& followed,
                      run::TrainListener& listener) {
    const resolve::DataShape data{data_.sequence, data_.global_batch};
    const auto own = device_->memory();
    const Bytes usable = own ? own->total : Bytes{machine_memory().count / std::max(1, groups_.world().size())};
    if (followed && !config.plan.empty()) resolve::check_followed(*followed, config, data, model);
    Plan plan =
        followed ? *followed : resolve::make_plan(config, data, model, usable, offload_choice(config, model, listener));
    if (!config.gradients_over_weights) plan.gradients_over_weights = false;
    if (config.dump_step0.empty()) return plan;
    // A dump holds gradients and logits, so they have to be there.
    plan.gradients_over_weights = false;
    if (!plan.fusion) plan.fusion = fusion_of(plan);
    plan.fusion->head = false;
    return plan;
}

void Session::resolve(const run::RunConfig& config, run::TrainListener& listener) {
    const resolve::RankMachine machine = this->machine();
    auto time = [&](DType compute, Bytes room) { return std::ref(timing(compute, room, listener)); };
    const resolve::OpenDecisions open{
        .machine = machine, .disk = disk_, .timing = time, .listener = listener, .times_steps = !config.report.empty()};
    resolve::ResolvedRank resolved = resolve::resolve_plan(plan_, open);
    plan_ = std::move(resolved.plan);
    prepared_ = std::move(resolved.prepared);
    decided_ = std::move(resolved.decided);
    memory_ = resolve::memory_of(prepared_, plan_, machine);
}

resolve::RankMachine Session::machine() {
    return {.source = source_,
            .device = *device_,
            .host = *host_,
            .groups = groups_,
            .links = links_.get(),
            .evaluates = data_.evaluation != nullptr};
}

offload::ModelData Session::model_data(std::byte* memory) const {
    return {*device_, prepared_.program(), compiled().holdings.chunks, holding(), memory};
}

offload::ModelData Session::model_data(const offload::Homes& homes) const {
    return {*device_, prepared_.program(), compiled().holdings.chunks, holding(), homes};
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
        timing(config.precision.compute, Bytes{4 * tensors.count / groups_.world().size()}, listener);
    choice.copies = speeds.copied_bytes();
    choice.flops = speeds.flops();
    return choice;
}

std::byte* Session::scratch_in(const backend::Arena& memory) const {
    return memory.data() + prepared_.chunk_memory(plan_).count;
}

void Session::share_libraries() {
    comm::World& world = groups_.world();
    if (!world.shares_process() || device_->memory()) return;
    comm::barrier(world.all()); // all have prepared what they will run ...
    const Bytes libraries = resident_memory();
    comm::barrier(world.all()); // ... and none has gone on
    memory_.libraries = Bytes{libraries.count / world.size()} + run::first_step_growth +
                        resolve::room_of_groups(prepared_.program(), world);
}

run::MemoryTable Session::memory_of(const Plan& plan) const {
    run::MemoryTable table =
        resolve::chunks_and_activations(compile::compile(resolve::build(source_, plan).graph, plan, rank()).program);
    table.workspace = memory_.workspace;
    table.buffers = memory_.buffers;
    table.libraries = memory_.libraries;
    table.capacity = memory_.capacity;
    return table;
}

double Session::flops_per_step() const {
    double flops = 0;
    for (const Task& task : prepared_.program().step)
        if (task.segment >= 0) flops += prepared_.program().segments[static_cast<std::size_t>(task.segment)].flops;
    return flops;
}

} // namespace tutti::train

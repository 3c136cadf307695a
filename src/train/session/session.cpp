#include "train/session/session.h"

#include "base/checked.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "graph/blocks.h"
#include "resolve/open_decisions.h"
#include "run/layout.h"
#include "train/session/doubts.h"
#include "train/session/requested_plan.h"

namespace tutti::train {

Session::Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given,
                 const offload::SpeedTable* speeds, const Plan* before)
    : opened_(config, listener, world, given), timing_(opened_, listener, speeds) {
    models::Model model =
        source().build({run::micro_batch_of(config, data().global_batch), data().sequence, config.precision.compute});
    plan_ = requested_plan(config, opened_, model, timing_, before);
    // Chunks are evicted when the host knows that their communication has ended.
    if (plan_.device_memory.count > 0) opened_.links.reset();
    for (const std::string& doubt : doubts_about(config, plan_, facts())) listener.warning(doubt);
    if (plan_.sub_pipeline) model = resolve::build(source(), plan_);
    for (const std::string& warning : opened_.check_weights(model)) listener.warning(warning);
    initialisation_ = model.initialisation;
    stored_.assign(model.graph.stored().begin(), model.graph.stored().end());
    blocks_ = narrow<int>(find_blocks(model.graph).size());
    if (device().asynchronous()) listener.waiting("preparing kernels");
    resolve(config, listener);
}

void Session::resolve(const run::RunConfig& config, run::TrainListener& listener) {
    const resolve::RankMachine machine{.source = opened_.source,
                                       .device = *opened_.device,
                                       .host = opened_.host(),
                                       .groups = opened_.groups,
                                       .links = opened_.links.get(),
                                       .evaluates = opened_.data.evaluation != nullptr};
    resolve::ResolvedRank resolved = resolve::resolve_plan(plan_, {.machine = machine,
                                                                   .disk = opened_.disk,
                                                                   .timing = std::ref(timing_),
                                                                   .listener = listener,
                                                                   .times_steps = !config.report.empty()});
    plan_ = std::move(resolved.plan);
    prepared_ = std::move(resolved.prepared);
    decided_ = std::move(resolved.decided);
    memory_ = resolve::memory_of(prepared_, plan_, machine);
    for (const std::string& slow : device().slow_kernels()) listener.warning(slow);
}

offload::ModelData Session::model_data(std::byte* memory) const {
    return {device(), prepared_.program(), compiled().ownership, memory};
}

offload::ModelData Session::model_data(const offload::BackingStore& backing) const {
    return {device(), prepared_.program(), compiled().ownership, backing};
}

std::byte* Session::scratch_in(const backend::Arena& memory) const {
    return memory.data() + prepared_.chunk_memory().count;
}

void Session::share_libraries() {
    comm::World& world = opened_.world();
    if (!world.shares_process() || device().memory()) return;
    comm::barrier(world.all()); // all have prepared what they will run ...
    const Bytes libraries = resident_memory();
    comm::barrier(world.all()); // ... and none has gone on
    memory_.libraries = Bytes{libraries.count / world.size()} + run::first_step_growth +
                        resolve::room_of_groups(prepared_.program(), world);
}

run::MemoryTable Session::memory_of(const Plan& plan) const {
    run::MemoryTable table =
        resolve::chunks_and_activations(compile::compile(resolve::build(source(), plan).graph, plan, rank()).program);
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

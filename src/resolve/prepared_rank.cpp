#include "resolve/prepared_rank.h"

#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "graph/passes.h"
#include "program/collective_order.h"
#include "program/over_weights.h"

#include <algorithm>

namespace tutti::resolve {

Bytes PreparedRank::scratch() const {
    return std::max(executor->scratch(), evaluator ? evaluator->scratch() : Bytes{});
}

Bytes PreparedRank::chunk_memory() const {
    return offload ? offload->device : offload::model_data_bytes(compiled->program);
}

models::Model build(const models::ModelSource& source, const Plan& plan) {
    const Workload& workload = plan.workload;
    return source.build({plan.sub_pipeline ? workload.micro_batch / 2 : workload.micro_batch, workload.sequence,
                         plan.precision.compute});
}

PreparedRank prepare(const RankMachine& machine, const Plan& plan, const offload::InstructionSeconds& seconds) {
    comm::World& world = machine.groups.world();
    const int rank = world.rank();
    PreparedRank prepared;
    prepared.compiled =
        std::make_unique<compile::Compiled>(compile::compile(build(machine.source, plan).graph, plan, rank));
    const compile::Compiled& compiled = *prepared.compiled;
    check_collective_orders(comm::gather_texts(world.all(), collective_orders(compiled.program)));
    const offload::PlannedResidency* residency = residency_of(plan, rank);
    prepared.executor = std::make_unique<runtime::Executor>(compiled.program, machine.device, machine.groups,
                                                            machine.links, residency ? &machine.host : nullptr);
    if (machine.evaluates) {
        const models::Model model =
            machine.source.build({plan.workload.micro_batch, plan.workload.sequence, plan.precision.compute});
        prepared.evaluation = std::make_unique<Program>(
            compile::compile_evaluation(remove_dropout(model.graph), plan, rank, compiled.ownership));
        prepared.evaluator =
            std::make_unique<runtime::Executor>(*prepared.evaluation, machine.device, machine.groups, machine.links);
    }
    if (!residency) return prepared;
    try {
        prepared.offload = offload::follow(*residency, compiled.program, prepared.evaluation.get(),
                                           {.prefetch = plan.prefetch, .seconds = seconds});
    } catch (const Error& error) {
        fail("the plan's residency of rank {} does not fit its program: {}; without \"residency\" in its file it is "
             "planned again",
             rank, error.what());
    }
    return prepared;
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

run::MemoryTable memory_of(const PreparedRank& rank, const Plan& plan, const RankMachine& machine) {
    run::MemoryTable table = chunks_and_activations(rank.program());
    table.workspace = rank.executor->workspace();
    table.limit = plan.device_memory;
    if (rank.offload) {
        table.limited = true;
        table.offloaded = piece_bytes(rank.program());
        table.on_device = rank.offload->device;
        table.on_host = rank.offload->backing.memory();
        table.on_disk = rank.offload->backing.disk;
    }
    table.buffers = rank.device_memory() - table.arena(); // what is left: so the table is the arena, to the byte
    if (const auto device = machine.device.memory()) {
        table.capacity = device->total;
        table.libraries = device->total - device->free;
    } else {
        table.libraries =
            resident_memory() + run::first_step_growth + room_of_groups(rank.program(), machine.groups.world());
    }
    return table;
}

Bytes room_of_groups(const Program& program, comm::World& world) {
    Bytes room; // of the owners of a stage, which communicate chunks, one stage after the other; all else is small
    for (const GroupSpec& group : program.groups)
        if (group.kind == GroupKind::owners)
            room = std::max(room, world.room_of_group(static_cast<int>(group.members.size())));
    return room;
}

} // namespace tutti::resolve

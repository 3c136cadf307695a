#include "compile/memory_use.h"

#include "compile/graphs/rank_graphs.h"

#include <algorithm>

namespace tutti::compile {

MemoryUse memory_use_of(std::span<const RankStage> stages, const Compiled& compiled) {
    const Program& program = compiled.program;
    MemoryUse result;
    result.weights = chunk_bytes(program, Region::weights);
    result.gradients = chunk_bytes(program, Region::gradients);
    for (Region region : {Region::master, Region::moments1, Region::moments2})
        if (has_chunks(program, region)) result.optimizer += chunk_bytes(program, region);
    for (std::size_t r = 0; r < region_count; ++r) {
        const auto region = static_cast<Region>(r);
        if (has_slots(region)) result.slots += slot_bytes(program, region);
        if (region == Region::constants || region == Region::batch || region == Region::results)
            result.other += program.sizes[r];
    }
    result.transient = program.sizes[static_cast<std::size_t>(Region::transient)];
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const LocalStage& local = program.stages[s];
        auto slot = [&](Region region) { return local.sizes[slotted(region)]; };
        StageUse& stage = result.stages.emplace_back();
        stage.stage = local.stage;
        stage.replica = local.replica;
        for (const StoredTensor& stored : stages[s].graph.stored()) stage.parameters += stored.type.elements();
        stage.stash = slot(Region::stash);
        stage.recomputed = slot(Region::recomputed);
        stage.deferred = slot(Region::deferred);
        stage.borders = slot(Region::received) + slot(Region::returned) + slot(Region::outbox);
        stage.in_flight = local.slots[slotted(Region::stash)];
        for (const Task& task : program.step)
            if (task.segment >= 0 && task.stage == local.stage && task.replica == local.replica)
                stage.transient =
                    std::max(stage.transient, program.segments[static_cast<std::size_t>(task.segment)].transient);
    }
    return result;
}

MemoryUse memory_use_of(const Graph& forward, const Plan& plan, int rank) {
    const RankGraphs graphs = training_graphs(forward, plan, rank);
    return memory_use_of(graphs.stages, compile_training(graphs.stages, plan, graphs.place));
}

} // namespace tutti::compile

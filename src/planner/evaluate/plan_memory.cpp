// The memory of a plan: the chunks of a rank's stages, their slots as the schedule takes them, and what is there once.
#include "planner/evaluate/plan_model.h"

#include <algorithm>
#include <limits>
#include <set>

namespace tutti::planner {

const RankBytes& PlanCost::tightest() const {
    return *std::ranges::min_element(ranks, {}, [](const RankBytes& rank) { return rank.margin(); });
}

double PlanCost::most_on_host() const { return std::ranges::max(ranks, {}, &RankBytes::on_host).on_host; }

double PlanModel::tied_elements(int first, int end, int tensor) const {
    double elements = 0;
    for (const TiedTensor& tie : chain_.ties) {
        const auto inside = std::ranges::count_if(tie.blocks, [&](int b) { return b >= first && b < end; });
        if (inside > 0 && inside < static_cast<std::ptrdiff_t>(tie.blocks.size()))
            elements += static_cast<double>(tie.elements) / tensor;
    }
    return elements;
}

double PlanModel::doubled_elements(int first, int end, int tensor) const {
    double elements = 0;
    for (const TiedTensor& tie : chain_.ties) {
        const auto inside = std::ranges::count_if(tie.blocks, [&](int b) { return b >= first && b < end; });
        if (inside > 1) elements += static_cast<double>((inside - 1) * tie.elements) / tensor;
    }
    return elements;
}

RankBytes PlanModel::chunk_bytes(double elements, Zero zero, int replica_count, double over) const {
    const Precision& types = workload_.precision;
    auto bytes = [&](double count, DType dtype, Region region) {
        return count * static_cast<double>(size_of(dtype)) / (zero.shards(region) ? replica_count : 1);
    };
    RankBytes result;
    result.weights = bytes(elements, types.compute, Region::weights);
    result.gradients = bytes(elements - over, types.gradients, Region::gradients);
    result.master = types.has_master() ? bytes(elements, types.master, Region::master) : 0;
    result.moments = 2 * bytes(elements, types.moments, Region::moments1);
    return result;
}

RankBytes PlanModel::least_chunk_bytes(double elements, Zero zero, int replica_count,
                                       std::int64_t micro_batches) const {
    const Precision& types = workload_.precision;
    const bool over = workload_.over_weights && micro_batches == 1 &&
                      (!zero.shards_gradients() || replica_count == 1) && types.has_master() &&
                      types.gradients == types.compute;
    return chunk_bytes(elements, zero, replica_count, over ? elements : 0);
}

double PlanModel::capacity(const PlacedRanks& placed, int rank) const {
    double least = std::numeric_limits<double>::infinity();
    for (int kind : placed.kinds[static_cast<std::size_t>(rank)])
        least =
            std::min(least, static_cast<double>(cluster().kinds[static_cast<std::size_t>(kind)].device.memory.count));
    return least;
}

double PlanModel::kept_free(double capacity) const {
    return options_.kept_free_share * capacity +
           std::min(static_cast<double>(options_.kept_free.count), 0.1 * capacity);
}

Bytes PlanModel::offload_room(const PlacedRanks& placed) const {
    double room = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < static_cast<int>(placed.kinds.size()); ++rank)
        room = std::min(room, capacity(placed, rank) - kept_free(capacity(placed, rank)));
    return {static_cast<std::int64_t>(room)};
}

RankBytes PlanModel::memory_of(const PlanDecisions& decisions, const PlacedRanks& placed, const ReadySchedule& schedule,
                               BackwardStyle style, int rank) {
    const int model_replicas = std::max(1, decisions.schedule.model_replicas);
    const schedule::ScheduleParameters& made = schedule.schedule.parameters;
    double elements = 0, over = 0, transient = 0, workspace = 0, slots = 0, constants = 0, batch = 0;
    std::set<int> held;
    for (const StageSlots& stage : schedule.ranks[static_cast<std::size_t>(rank)]) {
        const int first = decisions.first_block(stage.stage), end = decisions.end_block(stage.stage, chain_.blocks());
        const StageCost cost = stage_cost(decisions, placed, style_in(made, stage.stage, style), rank, first, end,
                                          decisions.recomputed_in(stage.stage));
        const StageFigures& figures = cost.figures;
        for (std::size_t r = 0; r < slotted_count; ++r) slots += stage.slots[r] * figures.slots[r];
        transient = std::max(transient, figures.transient);
        workspace = std::max(workspace, figures.workspace);
        constants += figures.constants;
        batch = std::max(batch, figures.batch);
        if (!held.insert(stage.stage).second) continue;
        elements += figures.elements;
        over += over_weights(figures, decisions);
    }
    // A tied tensor is there once, however many blocks of the rank's stages read it.
    for (const TiedTensor& tie : chain_.ties) {
        std::ptrdiff_t readers = 0;
        for (int stage : held)
            readers += std::ranges::count_if(tie.blocks, [&](int block) {
                return block >= decisions.first_block(stage) && block < decisions.end_block(stage, chain_.blocks());
            });
        if (readers > 1)
            elements -= static_cast<double>((readers - 1) * tie.elements) / decisions.tensor_parallel.ranks;
    }
    RankBytes bytes = chunk_bytes(elements, decisions.zero, decisions.data * model_replicas, over);
    bytes.activations = slots + transient;
    bytes.buffers = constants + batch * static_cast<double>(decisions.schedule.micro_batches) + workspace;
    bytes.capacity = capacity(placed, rank);
    bytes.kept_free =
        kept_free(bytes.capacity) + static_cast<double>(costs_.group_room(decisions.data * model_replicas).count);
    return bytes;
}

} // namespace tutti::planner

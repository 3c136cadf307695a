#include "planner/evaluate/splitting.h"

#include <algorithm>
#include <cmath>

namespace tutti::planner {
namespace {

double total_of(const StageFigures& figures) {
    double sum = 0;
    for (double seconds : figures.seconds) sum += seconds;
    return sum;
}

double slot_bytes_of(const StageFigures& figures, const StageSlots& slots) {
    double bytes = 0;
    for (std::size_t r = 0; r < slotted_count; ++r) bytes += slots.slots[r] * figures.slots[r];
    return bytes;
}

} // namespace

Splitter::Splitter(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed,
                   const ReadySchedule& schedule)
    : model_(model), decisions_(decisions), placed_(placed), schedule_(schedule), style_(style_of(decisions.schedule)),
      recomputes_in_(style_ == BackwardStyle::early ? StagePart::recompute : StagePart::backward),
      blocks_(model.chain().blocks()), stages_(decisions.schedule.stages()),
      alone_(decisions.schedule.stages_per_rank == 1 && decisions.schedule.model_replicas == 1) {
    for (int rank = 0; rank < decisions.pipe; ++rank) {
        const ChainFigures* slowest = nullptr;
        int slowest_kind = 0;
        for (int kind : placed.kinds[static_cast<std::size_t>(rank)]) {
            const ChainFigures& one = model.chain_figures(decisions, placed, style_, false, kind);
            if (slowest && total_of(one.stage(0, blocks_)) <= total_of(slowest->stage(0, blocks_))) continue;
            slowest = &one;
            slowest_kind = kind;
        }
        plain_.push_back(slowest);
        kinds_.push_back(slowest_kind);
    }
    slots_.resize(static_cast<std::size_t>(stages_));
    for (const auto& rank : schedule.ranks)
        for (const StageSlots& one : rank)
            if (one.replica == 0) slots_[static_cast<std::size_t>(one.stage)] = &one;
}

const ChainFigures& Splitter::full(int rank) const {
    return model_.chain_figures(decisions_, placed_, style_, true, kinds_[static_cast<std::size_t>(rank)]);
}

bool Splitter::recomputes() const {
    return std::ranges::any_of(decisions_.recompute, [](const auto& blocks) { return !blocks.empty(); });
}

double Splitter::time_of(int stage, int first, int end) const { return total_of(plain(stage).stage(first, end)); }

// Of a rank that has this stage alone: whether it fits, and what has to be computed again for it, the cheapest bytes
// first.
Splitter::Need Splitter::need_of(int stage, int first, int end) const {
    const StageFigures keeps = plain(stage).stage(first, end);
    const StageSlots& slots = *slots_[static_cast<std::size_t>(stage)];
    const int rank = rank_of_stage(stage), tensor = decisions_.tensor_parallel.ranks;
    RankBytes bytes = model_.chunk_bytes(keeps.elements - model_.doubled_elements(first, end, tensor), decisions_.zero,
                                         decisions_.data, PlanModel::over_weights(keeps, decisions_));
    bytes.capacity = model_.capacity(placed_, rank);
    bytes.kept_free = model_.kept_free(bytes.capacity);
    bytes.buffers = keeps.constants + keeps.batch * decisions_.schedule.micro_batches;
    bytes.activations = slot_bytes_of(keeps, slots) + keeps.transient;
    if (bytes.margin() >= 0) return {};
    if (model_.options().recompute == Recomputing::none) return {.fits = false};
    const StageFigures again = full(rank).stage(first, end);
    bytes.activations = slot_bytes_of(again, slots) + std::max(again.transient, keeps.transient);
    if (bytes.margin() < 0) return {.fits = false};
    const double all =
        std::max(0.0, again.time(recomputes_in_) - (style_ == BackwardStyle::early ? 0.0 : keeps.time(recomputes_in_)));
    const double freed = slot_bytes_of(keeps, slots) - slot_bytes_of(again, slots);
    return {.extra = all * recomputed_share(freed - bytes.margin(), freed)};
}

bool Splitter::holds(int stage, int first, int end, double most) const {
    const double time = time_of(stage, first, end);
    if (time > most) return false;
    if (!alone_) return true;
    const Need need = need_of(stage, first, end);
    return need.fits && time + need.extra <= most;
}

std::vector<Cuts> Splitter::balanced() const {
    double enough = 0;
    for (const ChainFigures* plain : plain_) enough = std::max(enough, total_of(plain->stage(0, blocks_)));
    enough *= 2; // a recomputation is no more than a forward
    auto holds = [this](int stage, int first, int end, double most) { return this->holds(stage, first, end, most); };
    return balanced_cuts(blocks_, stages_, holds, enough, 1e-7);
}

Cuts Splitter::even() const { return even_cuts(blocks_, stages_); }

std::vector<Cuts> Splitter::all_cuts(int most) const { return planner::all_cuts(blocks_, stages_, most); }

double Splitter::missing_on(int rank) {
    const RankBytes bytes = model_.memory_of(decisions_, placed_, schedule_, style_, rank);
    rank_total_ = bytes.total();
    return -bytes.margin();
}

// The blocks of a rank's stages that are not recomputed yet: in bidirectional schedules, ranks share stages. What the
// running task of a stage has within is larger as soon as any block is recomputed.
std::vector<RecomputableBlock> Splitter::recomputable_on(int rank) const {
    const ChainFigures &plain = *plain_[static_cast<std::size_t>(rank)], &all = full(rank);
    const std::vector<StageSlots>& stages = schedule_.ranks[static_cast<std::size_t>(rank)];
    auto within = [&](const ChainFigures& chain, int stage) { return chain.stage(first_of(stage), end_of(stage)); };
    double transient = 0, workspace = 0;
    for (const StageSlots& slots : stages) {
        const StageFigures now = within(decisions_.recomputed_in(slots.stage).empty() ? plain : all, slots.stage);
        transient = std::max(transient, now.transient);
        workspace = std::max(workspace, now.workspace);
    }
    std::vector<RecomputableBlock> blocks;
    for (const StageSlots& slots : stages) {
        const StageFigures again = within(all, slots.stage);
        const double active = std::max(0.0, again.transient - transient) + std::max(0.0, again.workspace - workspace);
        const int first = first_of(slots.stage);
        for (int block = first; block < end_of(slots.stage); ++block) {
            if (std::ranges::count(decisions_.recomputed_in(slots.stage), block) > 0) continue;
            const StageFigures freed = plain.added(block, first) - all.added(block, first);
            const double bytes = slot_bytes_of(freed, slots);
            const auto known = std::ranges::find(blocks, block, &RecomputableBlock::block);
            if (known != blocks.end()) // the rank has the stage in several replicas
                known->freed += bytes;
            else
                blocks.push_back({.stage = slots.stage,
                                  .block = block,
                                  .work = std::max(0.0, -freed.time(recomputes_in_)),
                                  .freed = bytes,
                                  .active = active});
        }
    }
    return blocks;
}

void Splitter::recompute(const std::vector<RecomputableBlock>& blocks, const RecomputeChoice& chosen) {
    for (const int i : chosen.blocks) {
        const RecomputableBlock& one = blocks[static_cast<std::size_t>(i)];
        std::vector<int>& stage = decisions_.recompute[static_cast<std::size_t>(one.stage)];
        stage.insert(std::ranges::lower_bound(stage, one.block), one.block);
    }
}

// The least recomputation of this rank's stages with which it fits. Blocks that are recomputed together may free a
// little less than each by itself: then as much more is chosen as is still missing.
bool Splitter::fit_rank(int rank) {
    double missing = missing_on(rank);
    if (missing <= 0) return true;
    if (model_.options().recompute != Recomputing::as_needed) return false;
    const std::vector<RecomputableBlock> blocks = recomputable_on(rank);
    const std::vector<std::vector<int>> before = decisions_.recompute;
    for (double excess = missing;;) {
        const RecomputeChoice chosen = least_recomputation(blocks, excess);
        decisions_.recompute = before;
        recompute(blocks, chosen);
        missing = missing_on(rank);
        if (missing <= 0 || !chosen.fits) return missing <= 0;
        excess = chosen.freed + missing;
    }
}

bool Splitter::complete(Cuts cuts) {
    decisions_.cuts = std::move(cuts);
    decisions_.recompute.assign(static_cast<std::size_t>(stages_), {});
    bool fits = true;
    largest_ = 0;
    for (int rank = 0; rank < decisions_.pipe; ++rank) {
        if (model_.options().recompute == Recomputing::all) {
            const std::vector<RecomputableBlock> blocks = recomputable_on(rank);
            recompute(blocks, full_recomputation(blocks));
        }
        fits &= fit_rank(rank);
        largest_ = std::max(largest_, rank_total_);
    }
    return fits;
}

} // namespace tutti::planner

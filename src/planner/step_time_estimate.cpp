#include "planner/step_time_estimate.h"

#include <algorithm>

namespace tutti::planner {
namespace {

// Of a backward's work, in a step of three equal parts.
constexpr double backward_share = 2.0 / 3;
// Where a part of the activations is recomputed, the cheapest bytes go first; they cost at least this much of the
// average.
constexpr double cheapest = 0.5;

} // namespace

StepTimeEstimator::StepTimeEstimator(PlanModel& model, const ScalingCandidate& candidate, const PlacedRanks& placed)
    : model_(model), candidate_(candidate), micro_batches_(static_cast<double>(candidate.micro_batches)),
      ranks_(candidate.decisions.pipe) {
    const PlanDecisions& decisions = candidate.decisions;
    const int kind = placed.kinds.front().front();
    const StageFigures all = model.segments()
                                 .figures(model.key_of(decisions, BackwardStyle::whole, false), placed.shapes, kind)
                                 .stage(0, model.chain().blocks());
    stash_ = all.slot(Region::stash);
    forward_ = all.time(StagePart::forward);
    elements_ = static_cast<double>(model.chain().all_parameters) / decisions.tensor_parallel.ranks / ranks_;
    for (int rank = 0; rank < decisions.pipe; ++rank) {
        const double capacity = model.capacity(placed, rank);
        room_ = std::max(room_, capacity - model.kept_free(capacity));
        if (model.cluster().kinds.size() == 1) break;
    }
    contention_ = model.costs().contention(kind).compute;
    if (decisions.data == 1) return;
    // Where gradients are sharded, every micro-batch reduces its own; where weights are, it gathers them twice.
    const Precision& types = model.workload().precision;
    auto seconds = [&](costs::Collective what, DType dtype) {
        const Bytes bytes{static_cast<std::int64_t>(elements_) * size_of(dtype)};
        return micro_batches_ * model.costs().collective_seconds(what, bytes, placed.shapes.data, kind);
    };
    reducing_ = seconds(costs::Collective::reduce_scatter, types.gradients);
    gathering_ = 2 * seconds(costs::Collective::all_gather, types.compute);
}

// On every rank, of the activations that its slots hold, those for which there is no room.
double StepTimeEstimator::recomputing(const ScheduleTraits& traits, Zero zero) const {
    const double chunks =
        model_
            .least_chunk_bytes(elements_ * traits.model_replicas, zero,
                               candidate_.decisions.data * traits.model_replicas, candidate_.micro_batches)
            .total();
    double share = 0;
    for (const double held : traits.held) {
        const double missing = chunks + held * stash_ - room_;
        if (missing > 0) share += recomputed_share(missing, held * stash_);
    }
    share /= static_cast<double>(traits.held.size());
    return cheapest * share * micro_batches_ * forward_ / ranks_;
}

double StepTimeEstimator::exposed(const ScheduleTraits& traits, Zero zero) const {
    if (zero.shards_gradients()) { // beside the work, which it slows down
        const double all = reducing_ + (zero.shards_weights() ? gathering_ : 0), work = candidate_.bound;
        return std::max((contention_ - 1) * std::min(all, work), all - work);
    }
    const double beneath = backward_share * candidate_.pass / ranks_;
    return std::max(0.0, candidate_.communication - beneath) / traits.stages_of_rank;
}

std::vector<StepTimeEstimate> StepTimeEstimator::estimates(const schedule::ScheduleParameters& parameters) const {
    const ScheduleTraits& traits = model_.schedules().traits(parameters);
    const double idle = traits.idle * candidate_.pass * (ranks_ - 1) / ranks_;
    std::vector<StepTimeEstimate> estimates;
    for (const Zero zero : zero_stages(candidate_.decisions.data * traits.model_replicas)) {
        const double again = recomputing(traits, zero);
        // What is recomputed early may be so while the rank would idle.
        const double both = traits.recomputes_early ? std::max(idle, again) : idle + again;
        estimates.push_back({zero, candidate_.bound + both + exposed(traits, zero) + candidate_.update});
    }
    return estimates;
}

} // namespace tutti::planner

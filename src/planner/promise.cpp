#include "planner/promise.h"

#include <algorithm>
#include <limits>

namespace tutti::planner {
namespace {

// Of a backward's work, in a step of three equal parts.
constexpr double backward_share = 2.0 / 3;
// Where a part of the activations is recomputed, the cheapest bytes go first; they cost at least this much of the
// average.
constexpr double cheapest = 0.5;

} // namespace

Outlook::Outlook(PlanModel& model, const ScalingCandidate& candidate, const LaidOut& out)
    : model_(model), candidate_(candidate), micro_batches_(static_cast<double>(candidate.micro_batches)),
      ranks_(candidate.point.pipe) {
    const PlanPoint& point = candidate.point;
    const int kind = out.kinds.front().front();
    const StageFigures all = model.segments()
                                 .figures(model.key_of(point, BackwardStyle::whole, false), out.shapes, kind)
                                 .stage(0, model.chain().blocks());
    stash_ = all.slot(Region::stash);
    forward_ = all.time(StagePart::forward);
    elements_ = static_cast<double>(model.chain().all_parameters) / point.strategies.tensor / ranks_;
    for (int rank = 0; rank < point.pipe; ++rank) {
        const double capacity = model.capacity(out, rank);
        room_ = std::max(room_, capacity - model.kept_free(capacity));
        if (model.cluster().kinds.size() == 1) break;
    }
    contention_ = model.costs().contention(kind).compute;
    if (point.data == 1) return;
    // From ZeRO 2 on, every micro-batch reduces its gradients; at 3 it gathers its weights twice.
    const Precision& types = model.workload().precision;
    auto seconds = [&](costs::Collective what, DType dtype) {
        const Bytes bytes{static_cast<std::int64_t>(elements_) * size_of(dtype)};
        return micro_batches_ * model.costs().collective_seconds(what, bytes, out.shapes.data, kind);
    };
    exchanges_[2] = seconds(costs::Collective::reduce_scatter, types.gradients);
    exchanges_[3] = exchanges_[2] + 2 * seconds(costs::Collective::all_gather, types.compute);
}

// On every rank, of the activations that its slots hold, those for which there is no room.
double Outlook::recomputing(const ScheduleTraits& traits, Zero zero) const {
    const double chunks = model_
                              .least_chunk_bytes(elements_ * traits.copies, zero, candidate_.point.data * traits.copies,
                                                 candidate_.micro_batches)
                              .total();
    double share = 0;
    for (const double held : traits.held) {
        const double missing = chunks + held * stash_ - room_;
        if (missing > 0) share += std::min(1.0, missing / (held * stash_));
    }
    share /= static_cast<double>(traits.held.size());
    return cheapest * share * micro_batches_ * forward_ / ranks_;
}

double Outlook::exposed(const ScheduleTraits& traits, Zero zero) const {
    if (zero.shards_gradients()) { // beside the work, which it slows down
        const double all = exchanges_[static_cast<std::size_t>(zero.stage())], work = candidate_.bound;
        return std::max((contention_ - 1) * std::min(all, work), all - work);
    }
    const double beneath = backward_share * candidate_.pass / ranks_;
    return std::max(0.0, candidate_.exchange - beneath) / traits.stages_of_rank;
}

Promises Outlook::promises(const schedule::ScheduleParameters& parameters) const {
    const ScheduleTraits& traits = model_.schedules().traits(parameters);
    const double idle = traits.idle * candidate_.pass * (ranks_ - 1) / ranks_;
    Promises promises;
    promises.fill(std::numeric_limits<double>::infinity());
    for (const Zero zero : zero_stages(candidate_.point.data * traits.copies)) {
        const double again = recomputing(traits, zero);
        // What is recomputed early may be so while the rank would idle.
        const double both = traits.recomputes_early ? std::max(idle, again) : idle + again;
        promises[static_cast<std::size_t>(zero.stage())] =
            candidate_.bound + both + exposed(traits, zero) + candidate_.update;
    }
    return promises;
}

} // namespace tutti::planner

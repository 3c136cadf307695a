// Splitting: where the chain of blocks is cut into stages, and what each stage recomputes, so that every rank fits
// its memory and the slowest stage is as fast as can be. A stage's memory follows from the micro-batches that the
// schedule keeps in flight, so earlier stages may have to recompute where later ones need not.
#pragma once

#include "planner/evaluate/plan_model.h"
#include "planner/stages/cuts.h"
#include "planner/stages/recompute_choice.h"

#include <vector>

namespace tutti::planner {

class Splitter {
  public:
    // `decisions` has everything but cuts and recomputation; its schedule is resolved.
    Splitter(PlanModel& model, const PlanDecisions& decisions, const PlacedRanks& placed,
             const ReadySchedule& schedule);

    // Cuts with the least bottleneck, exactly: stages are filled from the front, from the back, and in between. Empty
    // where not even recomputing everything makes the stages fit.
    std::vector<Cuts> balanced() const;
    // Stages of as many blocks each.
    Cuts even() const;
    // All of them, where there are no more than this; else empty.
    std::vector<Cuts> all_cuts(int most) const;

    // Decides for these cuts, with the least recomputation that makes every rank fit; false where none does (then
    // everything is recomputed).
    bool complete(Cuts cuts);
    const PlanDecisions& decisions() const { return decisions_; }
    double largest_memory() const { return largest_; } // of the ranks of the completed plan
    bool recomputes() const;

  private:
    struct Need {
        bool fits = true;
        double extra = 0; // seconds of recomputing
    };
    double time_of(int stage, int first, int end) const;
    Need need_of(int stage, int first, int end) const;
    bool holds(int stage, int first, int end, double most) const;
    double missing_on(int rank); // bytes; below 0: there are more than enough
    std::vector<RecomputableBlock> recomputable_on(int rank) const;
    void recompute(const std::vector<RecomputableBlock>& blocks, const RecomputeChoice& chosen);
    bool fit_rank(int rank);

    const ChainFigures& plain(int stage) const { return *plain_[static_cast<std::size_t>(rank_of_stage(stage))]; }
    const ChainFigures& full(int rank) const; // where everything is recomputed; measured when it is needed
    int first_of(int stage) const { return decisions_.first_block(stage); }
    int end_of(int stage) const { return decisions_.end_block(stage, blocks_); }
    int rank_of_stage(int stage) const { return schedule::rank_of(decisions_.schedule, 0, stage); }

    PlanModel& model_;
    PlanDecisions decisions_;
    const PlacedRanks& placed_;
    const ReadySchedule& schedule_;
    BackwardStyle style_;
    StagePart recomputes_in_;
    int blocks_, stages_;
    bool alone_;                             // a rank has one stage: then its memory can be known while it is filled
    std::vector<const ChainFigures*> plain_; // per rank, of its slowest kind
    std::vector<int> kinds_;                 // per rank: that
    double largest_ = 0, rank_total_ = 0;    // of all ranks; of the one that was looked at last
    std::vector<const StageSlots*> slots_;   // per stage, of model replica 0
};

} // namespace tutti::planner

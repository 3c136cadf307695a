// PlanModel: what a plan costs. PlanDecisions are all decisions of a plan in the planner's words; evaluating them gives
// the step time, where it goes, and the memory of every pipeline rank. Searching, plans set by hand and the tests all
// use this one.
#pragma once

#include "planner/evaluate/device_layout.h"
#include "planner/evaluate/schedule_table.h"
#include "planner/evaluate/segments.h"
#include "planner/stages/recompute_choice.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::planner {

struct PlanDecisions {
    TensorParallelism tensor_parallel{};
    int pipe = 1, data = 1;
    std::int64_t micro_batch = 1;
    Zero zero{};
    bool offload = false;                    // model data goes to host memory as far as devices have no room for it
    schedule::ScheduleParameters schedule{}; // of the pipe ranks and the micro-batches that follow
    std::vector<int> cuts{};
    std::vector<std::vector<int>> recompute{}; // per stage, blocks
    DeviceLayout layout{};

    sharding::Mesh mesh() const { return {.pipe = pipe, .data = data, .tensor = tensor_parallel.ranks}; }
    int stages() const { return static_cast<int>(cuts.size()) + 1; }
    int first_block(int stage) const { return stage == 0 ? 0 : cuts[static_cast<std::size_t>(stage - 1)]; }
    int end_block(int stage, int blocks) const {
        return stage + 1 == stages() ? blocks : cuts[static_cast<std::size_t>(stage)];
    }
    std::span<const int> recomputed_in(int stage) const {
        return recompute.empty() ? std::span<const int>{} : recompute[static_cast<std::size_t>(stage)];
    }
    bool operator==(const PlanDecisions&) const = default;
};

// Seconds of a step, of the average rank; they add up to it. `tensor` is waiting for collectives within tasks: of the
// tensor group, and of replicas where ZeRO shards weights or gradients; `communication` is waiting for messages and for
// the reduction of gradients.
struct StepTerms {
    double compute = 0, recompute = 0, tensor = 0, bubble = 0, communication = 0, optimizer = 0;
    double offloading = 0; // waiting for model data from the host
    double total() const { return compute + recompute + tensor + bubble + communication + optimizer + offloading; }
};

struct RankBytes {
    double weights = 0, gradients = 0, master = 0, moments = 0, activations = 0, buffers = 0;
    double kept_free = 0; // for libraries and workspace
    double elsewhere = 0; // of model data that is offloaded to host memory while it is not used
    double on_host = 0;   // of host memory, which backs all offloaded model data
    double capacity = 0;

    double chunks() const { return weights + gradients + master + moments; }
    double total() const { return chunks() + activations + buffers + kept_free - elsewhere; }
    double margin() const { return capacity - total(); }
};

struct PlanCost {
    double time = 0;
    double bubble = 0; // share of the step
    StepTerms terms{};
    std::vector<RankBytes> ranks{}; // per pipeline rank

    const RankBytes& tightest() const;
    double most_on_host() const;                           // of any rank
    bool fits() const { return tightest().margin() > -1; } // less than a byte is rounding
};

struct PlannerOptions {
    double kept_free_share = 0.02; // of a device's memory
    Bytes kept_free{std::int64_t{1} << 30};
    Recomputing recompute = Recomputing::as_needed;
    int threads = 1; // that small stages are compiled on; the result is the same
};

// A stage as a rank of some kinds of device computes it.
struct StageCost {
    schedule::StageCosts times{};    // without synchronisation and update
    std::array<double, 2> exposed{}; // within forward; within all of the backward
    StageFigures figures{};          // memory
};

class PlanModel {
  public:
    PlanModel(const BlockChain& chain, const costs::CostModel& costs, const PlannerWorkload& workload,
              const PlannerOptions& options);

    const BlockChain& chain() const { return chain_; }
    const costs::Cluster& cluster() const { return costs_.cluster(); }
    const costs::CostModel& costs() const { return costs_; }
    const PlannerWorkload& workload() const { return workload_; }
    const PlannerOptions& options() const { return options_; }
    SegmentTable& segments() { return segments_; }
    ScheduleTable& schedules() { return schedules_; }

    std::int64_t micro_batches(int data, std::int64_t micro_batch) const {
        return workload_.global_batch / (data * micro_batch);
    }
    // The schedule in order of the plan's costs; from the table where it does not follow them. Null where the family
    // does not take these numbers.
    ReadySchedule* schedule_of(const PlanDecisions& decisions, const PlacedRanks& placed,
                               std::unique_ptr<ReadySchedule>& owned);
    schedule::Costs costs_of(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style);
    StageCost stage_cost(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style, int rank,
                         int first, int end, std::span<const int> recomputed);

    // Null where the schedule does not take these numbers.
    std::optional<PlanCost> evaluate(const PlanDecisions& decisions);
    PlanCost evaluate(const PlanDecisions& decisions, const PlacedRanks& placed, ReadySchedule& schedule);
    // The time alone.
    double step_seconds(const PlanDecisions& decisions, const PlacedRanks& placed, ReadySchedule& schedule);

    RankBytes memory_of(const PlanDecisions& decisions, const PlacedRanks& placed, const ReadySchedule& schedule,
                        BackwardStyle style, int rank);
    // The bytes of chunks that are there for so many elements, sharded over so many ranks; `over` of them with
    // gradients that lie over the weights.
    RankBytes chunk_bytes(double elements, Zero zero, int replica_count, double over = 0) const;
    // The least that they may be, where a step has so many micro-batches.
    RankBytes least_chunk_bytes(double elements, Zero zero, int replica_count, std::int64_t micro_batches) const;
    // Of a stage's elements, those whose gradients lie over the weights: of whole chunks, and not added up.
    static double over_weights(const StageFigures& stage, const PlanDecisions& decisions) {
        return decisions.schedule.micro_batches == 1 ? stage.over : 0;
    }
    double capacity(const PlacedRanks& placed, int rank) const; // of the smallest device
    double kept_free(double capacity) const;
    Bytes
    offload_room(const PlacedRanks& placed) const; // what plans that offload keep a device to: the least of all ranks
    // Data replicas and tensor groups wait for the slowest of their ranks. Pipeline ranks even out their differences,
    // since they have slots between them and the slowest rank changes from time to time.
    double slowdown(const PlanDecisions& decisions) const;
    double tokens_per_second(double step_seconds) const;
    double utilisation(const PlanDecisions& decisions, double step_seconds) const;
    double step_flops() const { return 3 * chain_.forward_flops * static_cast<double>(workload_.global_batch); }

    SegmentKey key_of(const PlanDecisions& decisions, BackwardStyle style, bool recomputed) const;
    // Of the whole chain as these decisions have it, with the schedule's model replicas.
    const ChainFigures& chain_figures(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style,
                                      bool recomputed, int kind);
    // Of what a stage owns of tied tensors: elements that other stages own, too, and that it owns twice.
    double tied_elements(int first, int end, int tensor) const;
    double doubled_elements(int first, int end, int tensor) const;

  private:
    schedule::Costs evaluate_schedule(const PlanDecisions& resolved, const PlacedRanks& placed,
                                      ReadySchedule& schedule);
    void add_step_costs(const PlanDecisions& decisions, const PlacedRanks& placed, BackwardStyle style,
                        schedule::Costs& costs);

    const BlockChain& chain_;
    const costs::CostModel& costs_;
    const PlannerWorkload& workload_;
    PlannerOptions options_;
    SegmentTable segments_;
    ScheduleTable schedules_;
    schedule::Evaluation evaluation_; // keeps its memory
};

// What a person reads: "data=8 pipe=4 tensor=8, interleaved with 2 stages a rank, micro-batch 1, ZeRO 1". `blocks`:
// those of the model, of which some are recomputed; 0: not told.
std::string describe(const PlanDecisions& decisions, int blocks = 0);

// The Plan that a training run takes.
Plan plan_of(PlanModel& model, const PlanDecisions& decisions);

} // namespace tutti::planner

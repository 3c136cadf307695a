// Segments: what a run of blocks costs a rank, in time and in memory, for one way of splitting operators and one size
// of micro-batch. Nothing is estimated: small stages of one to three neighbouring blocks are compiled by the passes
// that compile a training run, and their instructions and regions are measured. A stage of many blocks follows from
// these, since what a block adds depends on the two before it alone:
//
//   stage(i..j) = stage(i..i+2) + sum over k in [i+2, j) of (stage(k-2..k+1) - stage(k-2..k))
#pragma once

#include "costs/cost_model.h"
#include "plan/plan.h"
#include "planner/evaluate/block_chain.h"
#include "planner/evaluate/open_chunks.h"

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace tutti::planner {

// How operators are split over the ranks of a tensor group: Megatron's way, or as intra-operator planning found.
struct TensorParallelism {
    int ranks = 1;
    bool sequence_parallel = true;
    bool sub_pipeline = false;
    int strategies = 0; // of operators, by their number in the SegmentTable; 0: Megatron's

    auto operator<=>(const TensorParallelism&) const = default;
};
std::string to_string(const TensorParallelism& tensor);

// The shape of a backward in the schedule, which decides what is compiled.
enum class BackwardStyle : std::uint8_t {
    whole, // B and W in one; what is recomputed is so within it
    split, // W by itself
    early, // whole, with recomputation as a task of its own
};

struct SegmentKey {
    TensorParallelism tensor_parallel;
    std::int64_t micro_batch = 1;
    BackwardStyle style = BackwardStyle::whole;
    Zero zero{}; // 0 stands for 1, too: only 2 and 3 change what a micro-batch does
    bool recomputed = false;

    auto operator<=>(const SegmentKey&) const = default;
};

enum class StagePart : std::uint8_t { forward, recompute, backward, weight_gradient };
constexpr std::size_t at(StagePart part) { return static_cast<std::size_t>(part); }
constexpr std::size_t stage_part_count = 4;

// Of one micro-batch on one rank. Additive over the blocks of a stage, but for the transient memory.
struct StageFigures {
    std::array<double, stage_part_count> seconds{};
    std::array<double, stage_part_count> exposed{}; // of these, waiting for collectives
    std::array<double, stage_part_count> spared{};  // in the first micro-batch, which overwrites gradients
    std::array<double, slotted_count> slots{};      // bytes of one slot
    double constants = 0, batch = 0;                // bytes
    double elements = 0;                            // of chunks, before anything is sharded
    double partial = 0;                             // of these, whose gradients are summed over the tensor group
    double over = 0;      // of these, whose gradients lie over the weights in steps of one micro-batch
    double transient = 0; // bytes: the largest of any part
    double windows = 0;   // of that part: bytes of all chunks that it has whole in turn
    double workspace = 0; // bytes: the largest of any kernel

    double slot(Region region) const { return slots[slotted(region)]; }
    double time(StagePart part) const { return seconds[static_cast<std::size_t>(part)]; }
};
StageFigures operator+(const StageFigures& a, const StageFigures& b); // transient: the larger
StageFigures operator-(const StageFigures& a, const StageFigures& b);

// The whole chain for one key, kind of device and shape of the groups: any stage in a few additions.
class ChainFigures {
  public:
    // windows[n][b]: of the stage of blocks b to b + n. `open`: as open_bytes gives it; empty: nothing is sharded.
    ChainFigures(std::array<std::vector<StageFigures>, BlockChain::longest_window> windows,
                 std::vector<std::vector<double>> open);

    StageFigures stage(int first, int end) const;   // blocks [first, end)
    StageFigures added(int block, int first) const; // what a block adds to a stage that begins there
    int blocks() const { return static_cast<int>(windows_[0].size()); }

  private:
    // Bytes of sharded chunks, at most.
    double whole_at_once(const StageFigures& stage, std::size_t first, std::size_t count) const;

    std::array<std::vector<StageFigures>, BlockChain::longest_window> windows_;
    std::vector<StageFigures> added_, sums_; // sums_[b]: of added_ before b
    std::vector<std::vector<double>> open_;
    std::vector<std::vector<double>> transients_; // of the longest windows, without chunks: a sparse table of maxima
    double growth_ = 0;                           // of the transient memory, with every block of a long stage
};

struct GroupShapes {
    costs::GroupShape tensor, data;
    bool operator==(const GroupShapes&) const = default;
};

struct PlannerWorkload {
    std::int64_t sequence = 0, global_batch = 0;
    Precision precision;
    std::int64_t chunk_elements = small_chunk; // where there are replicas
    Bytes head_logits{std::int64_t{64} << 20};
    bool over_weights = true; // gradients lie over weights where that is proved to be safe
};

class SegmentTable {
  public:
    // Small stages are compiled on so many threads.
    SegmentTable(const BlockChain& chain, const costs::CostModel& costs, const PlannerWorkload& workload,
                 int threads = 1);
    ~SegmentTable();

    // Error where the model cannot be split like that (fewer key heads than ranks).
    const ChainFigures& figures(const SegmentKey& key, const GroupShapes& shapes, int kind);
    int compiled() const; // small stages so far
    // Called before anything that may take long; what it throws goes through.
    void on_work(std::function<void()> before_work) { before_work_ = std::move(before_work); }

    // Gives strategies of operators the number by which TensorParallelism names them; equal ones have the same.
    int add_strategies(sharding::OperatorStrategies added);
    const sharding::OperatorStrategies& strategies(int number) const {
        return strategies_[static_cast<std::size_t>(number - 1)];
    }

  private:
    struct Sample;
    struct Window { // blocks of the sample model
        int first = 0, count = 0;
    };
    void compile(const SegmentKey& key, std::span<const Window> windows); // those that are not there yet
    std::unique_ptr<Sample> measure(const SegmentKey& key, const Window& window, const models::Model& model) const;
    const ChainFigures& find(const SegmentKey& key, const GroupShapes& shapes, int kind);
    ShardedChunks sharded_chunks(const SegmentKey& key, std::span<const StageFigures> blocks) const;

    // What was asked for last: callers ask for the same few again and again.
    struct Recent {
        SegmentKey key;
        GroupShapes shapes;
        int kind = -1;
        const ChainFigures* figures = nullptr;
    };

    const BlockChain& chain_;
    const costs::CostModel& costs_;
    const PlannerWorkload& workload_;
    int threads_;
    std::function<void()> before_work_;
    std::map<std::int64_t, std::shared_ptr<const models::Model>> models_; // by micro-batch
    std::map<std::tuple<SegmentKey, int, int>, std::unique_ptr<Sample>> samples_;
    std::map<std::tuple<SegmentKey, std::vector<int>, std::vector<int>, int>, std::unique_ptr<ChainFigures>> figures_;
    std::vector<sharding::OperatorStrategies> strategies_;
    std::array<Recent, 8> recent_;
    std::size_t next_recent_ = 0;
};

// The plan that a small stage is compiled by; also for tests, which compile whole stages with it.
Plan sample_plan(const BlockChain& chain, const PlannerWorkload& workload, const SegmentKey& key, int blocks, int first,
                 int end);

} // namespace tutti::planner

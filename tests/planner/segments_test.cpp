// Stages put together from small ones, against stages that are really compiled.
#include "compile/compile.h"
#include "ops/operators.h"
#include "planner/evaluate/segments.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {

using namespace compile;
using namespace costs;
using namespace models;
using namespace ops;
using namespace planner;
namespace {

NodeKind small_node() {
    NodeKind kind;
    kind.device = *find_device_preset("a100-80");
    kind.devices = 4;
    kind.link = {.latency = 5e-6, .bytes = 2e11};
    kind.host_memory = {std::int64_t{1} << 40};
    kind.host_copy = {.latency = 1e-5, .bytes = 2e10};
    return kind;
}

struct Bench {
    Cluster cluster;
    RooflineCost costs;
    PlannerWorkload workload;
    BlockChain chain;
    ModelSource source;

    Bench(const std::string& model, std::int64_t sequence)
        : cluster(uniform_cluster(small_node(), 1, {})),
          costs(cluster, all_operators()), workload{.sequence = sequence,
                                                    .global_batch = 8,
                                                    .precision = {.compute = DType::bfloat16}},
          chain(chain_of(open_model(model), sequence, DType::bfloat16)), source(open_model(model)) {}

    // Of the model itself, not of the sample.
    Program compile(const SegmentKey& key, int first, int end) const {
        const Model model = source.build({key.micro_batch, chain.sequence, DType::bfloat16});
        Plan plan = sample_plan(chain, workload, key, chain.blocks(), first, end);
        plan.fusion = FusionOptions{.head_logits = workload.head_logits};
        return compile::compile(model.graph, plan, plan.mesh.rank_of({.pipe = first > 0 ? 1 : 0})).program;
    }
};

double transient_of(const Program& program) {
    return static_cast<double>(program.sizes[static_cast<std::size_t>(Region::transient)].count);
}

TEST(Segments, StagesOfManyBlocksFollowFromPairs) {
    for (const char* name : {"gpt2", "llama-1b"}) {
        Bench bench(name, 256);
        SegmentTable table(bench.chain, bench.costs, bench.workload);
        const int n = bench.chain.blocks();
        for (const int tensor : {1, 2}) {
            for (const BackwardStyle style : {BackwardStyle::whole, BackwardStyle::split, BackwardStyle::early}) {
                for (const bool again : {false, true}) {
                    const SegmentKey key{
                        .tensor_parallel = {.ranks = tensor}, .micro_batch = 2, .style = style, .recomputed = again};
                    const ChainFigures& figures = table.figures(key, {{{tensor}}, {{1}}}, 0);
                    for (const auto& [first, end] : {std::pair(0, 5), std::pair(3, 9), std::pair(n - 4, n)}) {
                        SCOPED_TRACE(fmt::format("{} tensor {} style {} again {} blocks {} to {}", name, tensor,
                                                 static_cast<int>(style), again, first, end));
                        const Program program = bench.compile(key, first, end);
                        const StageFigures stage = figures.stage(first, end);
                        for (std::size_t r = 0; r < slotted_count; ++r)
                            EXPECT_NEAR(stage.slots[r], static_cast<double>(program.stages[0].sizes[r].count),
                                        0.002 * stage.slots[r] + 1024)
                                << r;
                        double elements = 0;
                        for (std::int64_t count : program.chunk_elements) elements += static_cast<double>(count);
                        EXPECT_NEAR(stage.elements, elements, 0.001 * elements);
                        // Where weight gradients come by themselves, what a block adds depends on more than its
                        // neighbours: then it may be too much.
                        EXPECT_GE(stage.transient, 0.98 * transient_of(program));
                        EXPECT_LE(stage.transient,
                                  (style == BackwardStyle::split ? 1.3 : 1.02) * transient_of(program));
                    }
                }
            }
        }
    }
}

} // namespace
} // namespace tutti

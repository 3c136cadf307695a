// Which gradients overwrite what the step before has left, and which add.
#include "compile/contributions.h"

#include "compile/compile.h"
#include "compile/graphs/step_graph.h"
#include "compile/node_order.h"
#include "models/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tutti {

using namespace compile;
namespace {

Plan plan_of_one_micro_batch() {
    Plan plan;
    plan.workload = {.sequence = 8, .global_batch = 2, .micro_batch = 2};
    return plan;
}

struct FoundContributions {
    Graph graph;
    Ownership ownership;
    NodeOrder order;
    StoredPlaces places;

    explicit FoundContributions(const models::Model& model)
        : graph(make_training_graph(model.graph, model.loss)), ownership(own_all(graph, plan_of_one_micro_batch())),
          order(order_nodes(graph, false)), places(graph, ownership) {}
    explicit FoundContributions(const char* model)
        : FoundContributions(models::open_model(model).build({2, 8, DType::float32})) {}

    Contributions find(bool cleared) const {
        return find_contributions(graph, order.order, places,
                                  std::vector<bool>(ownership.layout.chunks.size(), cleared));
    }
};

// GPT-2's token embedding is tied to its head: the head comes first in the backward and overwrites, the embedding adds.
// Queries, keys and values are views of one tensor that lie apart, so each has a first contribution of its own.
TEST(Contributions, TheFirstToAViewOverwritesAndOthersAdd) {
    const FoundContributions of("gpt2-tiny");
    const Contributions found = of.find(false);
    std::map<std::pair<std::int32_t, std::int64_t>, std::vector<bool>> first; // per view, in the order they run
    std::set<std::int32_t> tensors;
    for (std::size_t node : of.order.order)
        for (std::size_t o : found.of(node)) {
            const ValueId parameter = of.graph.outputs()[o].parameter;
            const std::int32_t stored = of.graph.parameter_of(parameter)->stored;
            first[{stored, of.graph.value(parameter).layout.offset}].push_back(found.first[o]);
            tensors.insert(stored);
        }
    std::size_t tied = 0;
    for (const auto& [view, overwrites] : first) {
        EXPECT_TRUE(overwrites.front()) << of.graph.stored()[static_cast<std::size_t>(view.first)].name;
        EXPECT_EQ(std::ranges::count(overwrites, true), 1);
        tied += overwrites.size() > 1;
    }
    EXPECT_EQ(tensors.size(), of.graph.stored().size());
    EXPECT_GT(tied, 0U);
}

TEST(Contributions, AllAddToWhatIsClearedBefore) {
    const Contributions found = FoundContributions("gpt2-tiny").find(true);
    EXPECT_EQ(std::ranges::count(found.first, true), 0);
    EXPECT_FALSE(found.of_node.empty());
}

// A chunk is final with the last of its tensors' contributions.
TEST(Contributions, KnowTheLastOfEachChunk) {
    const FoundContributions of("llama-tiny");
    const Contributions found = of.find(false);
    std::map<std::int32_t, std::size_t> last;
    for (std::size_t node : of.order.order)
        for (std::size_t o : found.of(node))
            last[of.places.of(of.graph.parameter_of(of.graph.outputs()[o].parameter)->stored).chunk] = node;
    EXPECT_EQ(found.last_of_chunk, last);
    EXPECT_EQ(last.size(), of.ownership.layout.chunks.size());
}

} // namespace
} // namespace tutti

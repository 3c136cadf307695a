// All ranks of a group do the same collectives in the same order, whatever the plan: drawn at random.
#include "program/collective_order.h"

#include "base/error.h"
#include "base/philox.h"
#include "compile/compile.h"
#include "models/model.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace tutti {

using namespace compile;
using namespace models;
using namespace schedule;
namespace {

struct Draw {
    const char* model;
    Plan plan;
};

Draw draw(std::uint32_t seed) {
    std::mt19937 random(seed);
    auto one_of = [&](const auto& values) { return values[random() % values.size()]; };
    Draw drawn{one_of(std::array{"gpt2-tiny", "llama-tiny", "bert-tiny"}), {}};
    Plan& plan = drawn.plan;
    plan.mesh = {.data = one_of(std::array{1, 1, 2, 3}), .tensor = one_of(std::array{1, 2, 2, 3, 4})};
    if (drawn.model == std::string_view("llama-tiny")) plan.mesh.tensor = std::min(plan.mesh.tensor, 2); // key heads
    plan.workload = {16, 4 * plan.mesh.data, 2};
    plan.zero = one_of(std::array{0, 0, 1, 2, 3});
    plan.sequence_parallel = random() % 4 != 0;
    plan.sub_pipeline = plan.mesh.tensor > 1 && random() % 4 == 0;
    plan.chunk_elements = 64 << (random() % 9);
    plan.chunk_elements += static_cast<std::int64_t>(random() % 200);
    if (random() % 3 == 0) {
        plan.mesh.pipe = 2;
        const ScheduleParameters parameters =
            resolve({.family = "1f1b", .ranks = 2, .micro_batches = static_cast<int>(plan.micro_batches())});
        const Costs costs = uniform_costs(parameters, {});
        plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
        plan.cuts = {2};
    }
    return drawn;
}

TEST(CollectiveOrder, IsTheSameOnAllRanksOfAGroup) {
    int several = 0; // with more than one rank
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        const auto [name, plan] = draw(seed);
        SCOPED_TRACE(fmt::format("seed {}: {}, {}, zero {}, chunks of {}", seed, name, to_string(plan.mesh),
                                 plan.zero.stage(), plan.chunk_elements));
        const Model model = open_model(name).build({plan.sub_pipeline ? 1 : 2, 16, DType::float32});
        std::vector<std::string> orders;
        for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
            orders.push_back(collective_orders(compile::compile(model.graph, plan, rank).program));
        }
        EXPECT_NO_THROW(check_collective_orders(orders));
        several += plan.mesh.ranks() > 1;
    }
    EXPECT_GT(several, 40);
}

// Biases of split matmuls are added by one rank of the tensor axis, and have gradients on all.
TEST(CollectiveOrder, IsTheSameWhereChunksEndWithinABlock) {
    const Model model = open_model("gpt2-tiny").build({8, 128, DType::float32});
    for (const std::int64_t elements : {256, 300, 512, 640, 1000, 1024, 1500, 1792}) {
        Plan plan;
        plan.mesh = {.tensor = 2};
        plan.workload = {128, 8, 8};
        plan.chunk_elements = elements;
        std::vector<std::string> orders;
        for (int rank = 0; rank < 2; ++rank) {
            orders.push_back(collective_orders(compile::compile(model.graph, plan, rank).program));
        }
        EXPECT_NE(orders[0], "");
        EXPECT_NO_THROW(check_collective_orders(orders)) << elements;
    }
}

TEST(CollectiveOrder, ADifferenceIsADefect) {
    const std::string one = "tensor of ranks 0 1: 2 collectives 00000000000000aa\n",
                      other = "tensor of ranks 0 1: 2 collectives 00000000000000ab\n",
                      elsewhere = "tensor of ranks 2 3: 2 collectives 00000000000000ab\n";
    EXPECT_NO_THROW(check_collective_orders({one, one, elsewhere, elsewhere}));
    EXPECT_THROW(check_collective_orders({one, other}), Bug);
}

} // namespace
} // namespace tutti

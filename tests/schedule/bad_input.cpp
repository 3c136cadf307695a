// Every refusal is one sentence that says what would work.
#include "base/error.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {

using namespace schedule;
namespace {

void expect_error(const ScheduleParameters& parameters, const std::string& says, const StageCosts& share = {}) {
    try {
        make_schedule(parameters, share);
        FAIL() << "nothing was refused: " << says;
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
}

TEST(BadInput, SizesThatDoNotWork) {
    expect_error({.family = "2f2b"}, "there are gpipe, 1f1b");
    expect_error({.family = "1f1b", .ranks = 0}, "at least 1");
    expect_error({.family = "1f1b", .ranks = -3}, "at least 1");
    expect_error({.family = "1f1b", .ranks = 2, .micro_batches = 0}, "at least 1");
    expect_error({.family = "1f1b", .ranks = 2, .micro_batches = 2, .stages_per_rank = 2}, "interleaved");
    expect_error({.family = "1f1b", .ranks = 2, .micro_batches = 2, .model_replicas = 2}, "chimera");
    expect_error({.family = "1f1b", .ranks = 2, .micro_batches = 2, .in_flight = -1}, "at least 1");
    expect_error({.family = "1f1b", .ranks = 4, .micro_batches = 8, .in_flight = 2}, "greedy, chimera");
    expect_error({.family = "zb-v", .ranks = 4, .micro_batches = 8, .in_flight = 2}, "greedy, chimera");
    expect_error({.family = "1f1b", .ranks = 4, .micro_batches = 8, .placement = StagePlacement::wave}, "greedy takes");
    expect_error({.family = "1f1b", .ranks = 4, .micro_batches = 8, .split_backward = true}, "zb-1p");
    expect_error({.family = "zb-1p", .ranks = 4, .micro_batches = 8, .deferred_weight_gradients = 1}, "greedy takes");
    expect_error({.family = "1f1b", .ranks = 4, .micro_batches = 8, .group = 2}, "interleaved takes");
    expect_error({.family = "interleaved", .ranks = 4, .micro_batches = 6}, "8 would be");
    expect_error({.family = "chimera", .ranks = 3, .micro_batches = 4}, "4 pipe ranks would");
    expect_error({.family = "chimera", .ranks = 4, .micro_batches = 5}, "6 would be");
    expect_error({.family = "hanayo", .ranks = 4, .micro_batches = 4, .stages_per_rank = 3}, "4 would be");
    expect_error({.family = "dualpipe", .ranks = 3, .micro_batches = 12}, "4 would be");
    expect_error({.family = "dualpipe", .ranks = 4, .micro_batches = 6}, "at least 8");
    expect_error({.family = "dualpipe-v", .ranks = 4, .micro_batches = 6}, "at least 8");
    expect_error({.family = "greedy", .ranks = 2, .micro_batches = 3, .model_replicas = 2}, "4 would be");
    expect_error({.family = "greedy", .ranks = 2, .micro_batches = 3, .recompute = {Recompute::early}}, "there are 2");
}

TEST(BadInput, ResolvedParametersStayAsTheyAre) {
    for (const Family& family : families()) {
        const ScheduleParameters once = resolve({.family = std::string(family.name), .ranks = 4, .micro_batches = 8});
        EXPECT_EQ(resolve(once), once) << family.name;
    }
}

TEST(BadInput, CostsThatAreNone) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 2, .micro_batches = 2};
    expect_error(parameters, "forward cost of stage 0 is -1", {.forward = -1});
    expect_error(parameters, "it has to be from 0 to 1e+18", {.recompute = std::nan("")});
    expect_error(parameters, "it has to be from 0 to 1e+18", {.backward = INFINITY});
    Costs costs = uniform_costs(resolve(parameters), {});
    costs.stages.pop_back();
    EXPECT_THROW(make_schedule(parameters, costs), Error);
    costs = uniform_costs(resolve(parameters), {}, -0.5);
    EXPECT_THROW(make_schedule(parameters, costs), Error);
}

TEST(BadInput, MemoryThatIsNotEnough) {
    expect_error({.family = "1f1b", .ranks = 4, .micro_batches = 8, .memory_cap = 3}, "takes a cap of 4");
    expect_error({.family = "greedy", .ranks = 4, .micro_batches = 8, .memory_cap = 0.5}, "takes a cap of 1");
    expect_error({.family = "greedy", .ranks = 4, .micro_batches = 8, .memory_cap = -1}, "above 0");
    const Schedule fits = make_schedule({.family = "greedy", .ranks = 4, .micro_batches = 8, .memory_cap = 1});
    EXPECT_EQ(fits.tasks.size(), 4 * 8 * 2u);
}

} // namespace
} // namespace tutti

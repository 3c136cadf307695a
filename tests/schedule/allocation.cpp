// Evaluating a prepared schedule again allocates nothing.
#include "schedule/counted_allocations.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace schedule;
namespace {

TEST(Evaluator, AllocatesNothingFromItsSecondUseOn) {
    for (const char* family : {"interleaved", "zb-v", "chimera"}) {
        const ScheduleParameters parameters{.family = family, .ranks = 4, .micro_batches = 8};
        Costs costs = uniform_costs(resolve(parameters), {.synchronise = 1, .update = 1}, 0.1);
        Evaluator evaluator(make_schedule(parameters, costs));
        Evaluation result;
        evaluator.evaluate(costs, result);
        const double first = result.time;
        costs.stages[1].forward *= 2;
        const int before = allocation_count();
        evaluator.evaluate(costs, result);
        costs.blocking = true;
        evaluator.evaluate(costs, result);
        EXPECT_EQ(allocation_count(), before) << family;
        EXPECT_GT(result.time, first);
    }
}

} // namespace
} // namespace tutti

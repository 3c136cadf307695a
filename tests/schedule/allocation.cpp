// Evaluating a prepared schedule again allocates nothing.
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int> allocations = 0;
} // namespace

void* operator new(std::size_t size) {
    ++allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti {
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
        const int before = allocations;
        evaluator.evaluate(costs, result);
        costs.blocking = true;
        evaluator.evaluate(costs, result);
        EXPECT_EQ(allocations, before) << family;
        EXPECT_GT(result.time, first);
    }
}

} // namespace
} // namespace tutti

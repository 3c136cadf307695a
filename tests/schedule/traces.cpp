// Small schedules worked out by hand, task by task.
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace schedule;
namespace {

struct Traced {
    const char* task;
    double start, end;
};

void expect_trace(const Schedule& schedule, const Costs& costs, const std::vector<std::vector<Traced>>& expected) {
    const Evaluation result = evaluate(schedule, costs);
    ASSERT_EQ(schedule.ranks(), static_cast<int>(expected.size()));
    for (int r = 0; r < schedule.ranks(); ++r) {
        ASSERT_EQ(schedule.rank(r).size(), expected[r].size()) << "rank " << r << "\n" << to_text(schedule);
        for (std::size_t k = 0; k < expected[r].size(); ++k) {
            const std::size_t i = static_cast<std::size_t>(schedule.first[r]) + k;
            EXPECT_EQ(to_string(schedule.tasks[i]), expected[r][k].task) << "rank " << r;
            EXPECT_DOUBLE_EQ(result.start[i], expected[r][k].start) << "rank " << r << " " << expected[r][k].task;
            EXPECT_DOUBLE_EQ(result.end[i], expected[r][k].end) << "rank " << r << " " << expected[r][k].task;
        }
    }
}

void expect_trace(const ScheduleParameters& parameters, const StageCosts& share, double communication,
                  const std::vector<std::vector<Traced>>& expected) {
    const Costs costs = uniform_costs(resolve(parameters), share, communication);
    expect_trace(make_schedule(parameters, costs), costs, expected);
}

TEST(Traces, OneForwardOneBackward) {
    expect_trace(
        {.family = "1f1b", .ranks = 2, .micro_batches = 3}, {.forward = 1, .backward = 1, .weight_gradient = 1}, 0,
        {{{"F0", 0, 1}, {"F1", 1, 2}, {"BW0", 4, 6}, {"F2", 6, 7}, {"BW1", 7, 9}, {"BW2", 10, 12}},
         {{"F0.1", 1, 2}, {"BW0.1", 2, 4}, {"F1.1", 4, 5}, {"BW1.1", 5, 7}, {"F2.1", 7, 8}, {"BW2.1", 8, 10}}});
}

TEST(Traces, OneForwardOneBackwardWithMessagesOfAQuarter) {
    expect_trace({.family = "1f1b", .ranks = 2, .micro_batches = 2},
                 {.forward = 1, .backward = 1, .weight_gradient = 1}, 0.25,
                 {{{"F0", 0, 1}, {"F1", 1, 2}, {"BW0", 4.5, 6.5}, {"BW1", 7.5, 9.5}},
                  {{"F0.1", 1.25, 2.25}, {"BW0.1", 2.25, 4.25}, {"F1.1", 4.25, 5.25}, {"BW1.1", 5.25, 7.25}}});
}

// The same step: what each rank waits for.
TEST(Traces, IdleTimeHasItsReasons) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 2, .micro_batches = 2};
    const Costs costs = uniform_costs(resolve(parameters), {.forward = 1, .backward = 1, .weight_gradient = 1}, 0.25);
    const Evaluation result = evaluate(make_schedule(parameters, costs), costs);
    EXPECT_DOUBLE_EQ(result.time, 9.5);
    EXPECT_DOUBLE_EQ(result.bubble, 1 - 12 / 19.0);
    EXPECT_DOUBLE_EQ(result.ranks[0].idle.warm_up, 2.25); // 2 to 4.5 for the first gradient, a quarter of it on its way
    EXPECT_DOUBLE_EQ(result.ranks[0].idle.cool_down, 0.75);
    EXPECT_DOUBLE_EQ(result.ranks[0].idle.communication, 0.5);
    EXPECT_DOUBLE_EQ(result.ranks[0].window_idle, 3.5);
    EXPECT_DOUBLE_EQ(result.ranks[1].idle.warm_up, 1);
    EXPECT_DOUBLE_EQ(result.ranks[1].idle.communication, 0.25);
    EXPECT_DOUBLE_EQ(result.ranks[1].idle.cool_down, 2.25);
    EXPECT_DOUBLE_EQ(result.ranks[1].window_idle, 0);
    EXPECT_DOUBLE_EQ(result.ranks[0].idle.steady + result.ranks[1].idle.steady, 0);
    EXPECT_DOUBLE_EQ(result.ranks[0].peak_activations, 2);
    EXPECT_DOUBLE_EQ(result.ranks[1].peak_activations, 1);
}

// A message that blocks keeps its sender from the next task.
TEST(Traces, OneForwardOneBackwardWithMessagesThatBlock) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 2, .micro_batches = 2};
    Costs costs = uniform_costs(resolve(parameters), {.forward = 1, .backward = 1, .weight_gradient = 1}, 0.25);
    costs.blocking = true;
    expect_trace(make_schedule(parameters, costs), costs,
                 {{{"F0", 0, 1}, {"F1", 1.25, 2.25}, {"BW0", 4.5, 6.5}, {"BW1", 7.75, 9.75}},
                  {{"F0.1", 1.25, 2.25}, {"BW0.1", 2.25, 4.25}, {"F1.1", 4.5, 5.5}, {"BW1.1", 5.5, 7.5}}});
}

TEST(Traces, ZeroBubbleOneP) {
    expect_trace({.family = "zb-1p", .ranks = 3, .micro_batches = 4}, {}, 0,
                 {{{"F0", 0, 1},
                   {"F1", 1, 2},
                   {"F2", 2, 3},
                   {"B0", 5, 6},
                   {"W0", 6, 7},
                   {"F3", 7, 8},
                   {"B1", 8, 9},
                   {"W1", 9, 10},
                   {"B2", 10, 11},
                   {"W2", 11, 12},
                   {"B3", 12, 13},
                   {"W3", 13, 14}},
                  {{"F0.1", 1, 2},
                   {"F1.1", 2, 3},
                   {"B0.1", 4, 5},
                   {"F2.1", 5, 6},
                   {"B1.1", 6, 7},
                   {"W0.1", 7, 8},
                   {"F3.1", 8, 9},
                   {"B2.1", 9, 10},
                   {"W1.1", 10, 11},
                   {"B3.1", 11, 12},
                   {"W2.1", 12, 13},
                   {"W3.1", 13, 14}},
                  {{"F0.2", 2, 3},
                   {"B0.2", 3, 4},
                   {"F1.2", 4, 5},
                   {"B1.2", 5, 6},
                   {"F2.2", 6, 7},
                   {"B2.2", 7, 8},
                   {"W0.2", 8, 9},
                   {"F3.2", 9, 10},
                   {"B3.2", 10, 11},
                   {"W1.2", 11, 12},
                   {"W2.2", 12, 13},
                   {"W3.2", 13, 14}}});
}

// Merak's own order: the last rank recomputes nothing, the one before it runs three forwards ahead and never idles. A
// star marks what keeps only its input.
TEST(Traces, ShiftedCriticalPath) {
    expect_trace({.family = "shifted-critical-path", .ranks = 3, .micro_batches = 4},
                 {.forward = 1, .backward = 1, .weight_gradient = 1, .recompute = 1}, 0,
                 {{{"F0*", 0, 1},
                   {"F1*", 1, 2},
                   {"F2*", 2, 3},
                   {"R0", 3, 4},
                   {"BW0", 7, 9},
                   {"F3*", 9, 10},
                   {"R1", 10, 11},
                   {"BW1", 11, 13},
                   {"R2", 13, 14},
                   {"BW2", 14, 16},
                   {"R3", 16, 17},
                   {"BW3", 17, 19}},
                  {{"F0.1*", 1, 2},
                   {"F1.1*", 2, 3},
                   {"F2.1*", 3, 4},
                   {"R0.1", 4, 5},
                   {"BW0.1", 5, 7},
                   {"R1.1", 7, 8},
                   {"BW1.1", 8, 10},
                   {"F3.1*", 10, 11},
                   {"R2.1", 11, 12},
                   {"BW2.1", 12, 14},
                   {"R3.1", 14, 15},
                   {"BW3.1", 15, 17}},
                  {{"F0.2", 2, 3},
                   {"BW0.2", 3, 5},
                   {"F1.2", 5, 6},
                   {"BW1.2", 6, 8},
                   {"F2.2", 8, 9},
                   {"BW2.2", 9, 11},
                   {"F3.2", 11, 12},
                   {"BW3.2", 12, 14}}});
}

TEST(Traces, Interleaved) {
    expect_trace({.family = "interleaved", .ranks = 2, .micro_batches = 2, .stages_per_rank = 2},
                 {.forward = 2, .backward = 2, .weight_gradient = 2}, 0,
                 {{{"F0", 0, 1},
                   {"F1", 1, 2},
                   {"F0.2", 2, 3},
                   {"F1.2", 3, 4},
                   {"BW0.2", 6, 8},
                   {"BW1.2", 9, 11},
                   {"BW0", 11, 13},
                   {"BW1", 13, 15}},
                  {{"F0.1", 1, 2},
                   {"F1.1", 2, 3},
                   {"F0.3", 3, 4},
                   {"BW0.3", 4, 6},
                   {"F1.3", 6, 7},
                   {"BW1.3", 7, 9},
                   {"BW0.1", 9, 11},
                   {"BW1.1", 11, 13}}});
}

} // namespace
} // namespace tutti

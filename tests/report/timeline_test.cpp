#include "report/timeline.h"

#include "schedule/families.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace report;
using namespace schedule;
namespace {

struct Made {
    Schedule schedule;
    Costs costs;
    Evaluation evaluation;
    Timeline timeline;
};

Made make(const std::string& family, int ranks, int micro_batches, const StageCosts& share, double communication = 0,
          bool blocking = false) {
    const ScheduleParameters p = resolve({.family = family, .ranks = ranks, .micro_batches = micro_batches});
    Made made{{}, uniform_costs(p, share, communication), {}, {}};
    made.costs.blocking = blocking;
    made.schedule = make_schedule(p, made.costs);
    made.evaluation = evaluate(made.schedule, made.costs);
    made.timeline = make_timeline(made.schedule, made.costs, made.evaluation);
    return made;
}

constexpr StageCosts no_split{.forward = 1, .backward = 2, .weight_gradient = 0};

TEST(Timeline, ShowsOneForwardOneBackwardAsWorkedOutByHand) {
    const Timeline timeline = make("1f1b", 2, 3, no_split).timeline;
    EXPECT_EQ(timeline.title, "1f1b");
    EXPECT_DOUBLE_EQ(timeline.time, 12);
    ASSERT_EQ(timeline.rows.size(), 2u);
    const std::vector<Idle> first = {{2, 4, IdleCause::warm_up}, {9, 10, IdleCause::cool_down}};
    const std::vector<Idle> second = {{0, 1, IdleCause::warm_up}, {10, 12, IdleCause::cool_down}};
    EXPECT_EQ(timeline.rows[0].idle, first);
    EXPECT_EQ(timeline.rows[1].idle, second);
    // Rank 0 holds micro-batches 0 and 1, then 1 and 2, then 2.
    const std::vector<Held> held = {{0, 1}, {1, 2}, {6, 2}, {9, 1}, {12, 0}, {12, 0}};
    EXPECT_EQ(timeline.rows[0].held, held);
    ASSERT_EQ(timeline.rows[0].boxes.size(), 6u);
    EXPECT_EQ(timeline.rows[0].boxes[4], (Box{BoxKind::full_backward, 7, 9, 0, 0, 0, 1, 0}));
}

TEST(Timeline, WaitingOnceMessagesAreSentIsCommunication) {
    const Timeline timeline = make("1f1b", 2, 1, no_split, 0.5).timeline;
    const std::vector<Idle> first = {{1, 1 + 0.5 + 1 + 2, IdleCause::warm_up}, {4.5, 5, IdleCause::communication}};
    const std::vector<Idle> second = {
        {0, 1, IdleCause::warm_up}, {1, 1.5, IdleCause::communication}, {4.5, 7, IdleCause::cool_down}};
    EXPECT_EQ(timeline.rows[0].idle, first);
    EXPECT_EQ(timeline.rows[1].idle, second);
}

TEST(Timeline, TellsWhatOfABackwardIsRecomputing) {
    StageCosts share = no_split;
    share.recompute = 1;
    const Timeline timeline = make("1f1b", 2, 2, share).timeline;
    EXPECT_TRUE(timeline.recomputes());
    EXPECT_FALSE(timeline.has(BoxKind::recompute));
    const Box& backward = timeline.rows[1].boxes[1];
    EXPECT_EQ(backward.kind, BoxKind::full_backward);
    EXPECT_DOUBLE_EQ(backward.recomputing, 1);
    EXPECT_DOUBLE_EQ(backward.compute_start(), backward.end - 2);
    EXPECT_TRUE(make("early-recompute", 2, 2, share).timeline.has(BoxKind::recompute));
}

// Every family, with all kinds of costs: nothing overlaps, nothing is left out, and the sums are the evaluator's.
TEST(Timeline, FillsTheStepAndAgreesWithTheEvaluator) {
    const StageCosts share{.forward = 1.1,
                           .backward = 1.3,
                           .weight_gradient = 0.7,
                           .recompute = 0.4,
                           .activation = 1,
                           .kept_after_backward = 0.6,
                           .boundary = 0.1,
                           .synchronise = 0.9,
                           .update = 0.35};
    for (const Family& family : families()) {
        for (const bool blocking : {false, true}) {
            SCOPED_TRACE(std::string(family.name) + (blocking ? ", blocking" : ""));
            const Made made = make(std::string(family.name), 4, 12, share, 0.23, blocking);
            for (std::size_t r = 0; r < made.timeline.rows.size(); ++r) {
                const TimelineRow& row = made.timeline.rows[r];
                const RankEvaluation& rank = made.evaluation.ranks[r];
                std::vector<std::pair<double, double>> parts;
                for (const Box& box : row.boxes) parts.emplace_back(box.start, box.end);
                IdleTime idle;
                for (const Idle& one : row.idle) {
                    parts.emplace_back(one.start, one.end);
                    double& sum = one.cause == IdleCause::warm_up     ? idle.warm_up
                                  : one.cause == IdleCause::steady    ? idle.steady
                                  : one.cause == IdleCause::cool_down ? idle.cool_down
                                                                      : idle.communication;
                    sum += one.end - one.start;
                }
                std::sort(parts.begin(), parts.end());
                double now = 0;
                for (const auto& [start, end] : parts) {
                    EXPECT_NEAR(start, now, 1e-9) << "rank " << r;
                    now = end;
                }
                EXPECT_NEAR(now, made.evaluation.time, 1e-9) << "rank " << r;
                EXPECT_NEAR(idle.warm_up, rank.idle.warm_up, 1e-9) << "rank " << r;
                EXPECT_NEAR(idle.steady, rank.idle.steady, 1e-9) << "rank " << r;
                EXPECT_NEAR(idle.cool_down, rank.idle.cool_down, 1e-9) << "rank " << r;
                EXPECT_NEAR(idle.communication, rank.idle.communication, 1e-9) << "rank " << r;
                EXPECT_NEAR(row.peak, rank.peak_activations, 1e-9) << "rank " << r;
                EXPECT_NEAR(row.held.back().activations, 0, 1e-9) << "rank " << r;
            }
        }
    }
}

} // namespace
} // namespace tutti

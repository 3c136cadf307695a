// What must hold for any schedule, on random ones: complete, dependencies, no deadlock, memory, and the fast evaluator
// equal to the slow one to the last digit.
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/slow_reference.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {

using namespace schedule;
namespace {

class Dice {
  public:
    explicit Dice(unsigned seed) : engine_(seed) {}
    int number(int from, int to) { return std::uniform_int_distribution(from, to)(engine_); }
    double real(double from, double to) { return std::uniform_real_distribution(from, to)(engine_); }
    bool coin() { return number(0, 1) == 1; }

  private:
    std::mt19937 engine_;
};

Costs random_costs(Dice& dice, const ScheduleParameters& p) {
    Costs costs;
    const bool recompute = dice.coin(), communicate = dice.coin(), round = dice.number(0, 3) == 0;
    for (int s = 0; s < p.stages(); ++s) {
        StageCosts stage;
        stage.forward = dice.real(0.2, 2);
        stage.backward = dice.real(0.2, 2);
        stage.weight_gradient = dice.real(0, 2);
        stage.recompute = recompute ? dice.real(0, 2) : 0;
        stage.activation = dice.real(1, 2);
        stage.kept_after_backward = stage.activation * dice.real(0, 1);
        stage.boundary = stage.activation * dice.real(0, 0.5);
        if (round) stage = {.recompute = recompute ? 1.0 : 0.0}; // many events at the same time
        costs.stages.push_back(stage);
    }
    costs.communication.clear();
    const int edges = dice.coin() ? 1 : (p.stages() - 1) * (dice.coin() ? p.model_replicas : 1);
    for (int e = 0; e < std::max(1, edges); ++e) costs.communication.push_back(communicate ? dice.real(0, 1) : 0);
    costs.blocking = dice.coin();
    return costs;
}

ScheduleParameters random_greedy(Dice& dice) {
    ScheduleParameters p{.family = "greedy"};
    p.ranks = dice.number(1, 6);
    p.stages_per_rank = dice.number(1, 3);
    p.model_replicas = dice.number(1, 3);
    p.micro_batches = p.model_replicas * dice.number(1, 6);
    p.placement = static_cast<StagePlacement>(dice.number(0, 2));
    p.in_flight = dice.number(0, 7);
    p.split_backward = dice.coin();
    p.deferred_weight_gradients = dice.number(-1, 3);
    if (dice.coin())
        for (int s = 0; s < p.stages(); ++s) p.recompute.push_back(static_cast<Recompute>(dice.number(0, 2)));
    return p;
}

ScheduleParameters random_named(Dice& dice) {
    const auto all = families();
    ScheduleParameters p{.family = std::string(all[dice.number(0, static_cast<int>(all.size()) - 1)].name)};
    p.ranks = dice.number(1, 6);
    p.micro_batches = dice.number(1, 14);
    if (p.family == "interleaved") {
        p.stages_per_rank = dice.number(1, 3);
        p.micro_batches = p.ranks * dice.number(1, 3);
    }
    if (p.family == "hanayo") p.stages_per_rank = 2 * dice.number(1, 2);
    if (p.family == "chimera") {
        p.model_replicas = 2 * dice.number(1, 2);
        p.ranks = p.model_replicas * dice.number(1, 2);
        p.micro_batches = p.model_replicas * dice.number(1, 4);
    }
    if (p.family == "mixpipe" || p.family == "dualpipe") p.micro_batches = 2 * dice.number(1, 8);
    if (p.family == "dualpipe") p.ranks = 2 * dice.number(1, 3);
    if (p.family.starts_with("dualpipe")) p.micro_batches = 2 * p.ranks + 2 * dice.number(0, 4);
    return p;
}

void check_everything(const ScheduleParameters& parameters, const Costs& costs) {
    const Schedule schedule = make_schedule(parameters, costs);
    check_complete(schedule);
    check_dependencies(schedule);
    const int posted = receives_posted(schedule);
    EXPECT_TRUE(runs_through(schedule, posted));
    EXPECT_TRUE(posted == 1 || !runs_through(schedule, posted - 1));
    const Evaluation fast = evaluate(schedule, costs);
    const SlowResult slow = evaluate_slowly(schedule, costs);
    ASSERT_TRUE(slow.finished);
    EXPECT_EQ(fast.start, slow.start);
    EXPECT_EQ(fast.end, slow.end);
    double busy = 0;
    for (int r = 0; r < schedule.ranks(); ++r) {
        const RankEvaluation& rank = fast.ranks[r];
        EXPECT_NEAR(rank.peak_activations, slow.peaks[r], 1e-9);
        EXPECT_NEAR(rank.busy + rank.idle.total(), fast.time, 1e-9 * fast.time);
        double working = 0;
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) working += slow.end[i] - slow.start[i];
        EXPECT_NEAR(rank.busy, working, 1e-9 * fast.time);
        EXPECT_NEAR(rank.window_idle, rank.last_end - rank.first_start - working, 1e-9 * fast.time);
        busy += working;
    }
    EXPECT_NEAR(fast.bubble, 1 - busy / (schedule.ranks() * fast.time), 1e-9);
}

TEST(Properties, RandomGreedySchedulesAreRightToTheLastDigit) {
    for (unsigned seed = 0; seed < 600; ++seed) {
        SCOPED_TRACE(seed);
        Dice dice(seed);
        const ScheduleParameters parameters = random_greedy(dice);
        check_everything(parameters, random_costs(dice, resolve(parameters)));
        if (HasFailure()) return;
    }
}

TEST(Properties, RandomPointsOfEveryFamilyAreRightToTheLastDigit) {
    for (unsigned seed = 0; seed < 1200; ++seed) {
        Dice dice(seed);
        const ScheduleParameters parameters = random_named(dice);
        SCOPED_TRACE(
            fmt::format("seed {}: {} P={} M={}", seed, parameters.family, parameters.ranks, parameters.micro_batches));
        check_everything(parameters, random_costs(dice, resolve(parameters)));
        if (HasFailure()) return;
    }
}

TEST(Properties, AMemoryCapIsKeptOrRefused) {
    int kept = 0, refused = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        Dice dice(seed);
        ScheduleParameters parameters = random_greedy(dice);
        const Costs costs = random_costs(dice, resolve(parameters));
        const Evaluation free = evaluate(make_schedule(parameters, costs), costs);
        parameters.memory_cap = free.peak_activations() * dice.real(0.2, 1);
        try {
            const Evaluation bound = evaluate(make_schedule(parameters, costs), costs);
            EXPECT_LE(bound.peak_activations(), parameters.memory_cap * (1 + 1e-9));
            ++kept;
        } catch (const Error&) {
            ++refused;
        }
    }
    EXPECT_GT(kept, 100);
    EXPECT_GT(refused, 50);
}

TEST(Properties, AnOrderThatWaitsInACircleIsFound) {
    Schedule schedule = make_schedule({.family = "1f1b", .ranks = 2, .micro_batches = 2});
    // Rank 0 wants the gradient of micro-batch 0 before it has made the activation of micro-batch 1; rank 1 the other
    // way round.
    schedule.tasks = {parse_task("F0"),   parse_task("BW0"),  parse_task("F1"),    parse_task("BW1"),
                      parse_task("F0.1"), parse_task("F1.1"), parse_task("BW0.1"), parse_task("BW1.1")};
    check_complete(schedule);
    check_dependencies(schedule);
    EXPECT_THROW(Evaluator{schedule}, Error);
    EXPECT_THROW(receives_posted(schedule), Error);
}

TEST(Properties, AnOrderThatMissesOrTurnsTasksIsFound) {
    const Schedule good = make_schedule({.family = "zb-1p", .ranks = 3, .micro_batches = 4});
    for (std::size_t i = 0; i < good.tasks.size(); ++i) {
        Schedule bad = good;
        bad.tasks[i] = bad.tasks[(i + 1) % bad.tasks.size()];
        EXPECT_THROW(check_complete(bad), Error);
    }
    Schedule turned = good;
    std::reverse(turned.tasks.begin(), turned.tasks.begin() + turned.first[1]);
    check_complete(turned);
    EXPECT_THROW(check_dependencies(turned), Error);
}

TEST(Properties, ReceivesPostedAreAsManyAsTheOrderNeeds) {
    // 1F1B exchanges with one receive per peer; GPipe's ranks run ahead no further than that either.
    EXPECT_EQ(receives_posted(make_schedule({.family = "gpipe", .ranks = 4, .micro_batches = 8})), 1);
    // Rank 0 makes two activations before it reads a gradient, rank 1 reads both late.
    Schedule schedule = make_schedule({.family = "1f1b", .ranks = 2, .micro_batches = 2});
    schedule.tasks = {parse_task("F0"),   parse_task("F1"),   parse_task("BW1"),   parse_task("BW0"),
                      parse_task("F1.1"), parse_task("F0.1"), parse_task("BW1.1"), parse_task("BW0.1")};
    EXPECT_EQ(receives_posted(schedule), 2);
    EXPECT_FALSE(runs_through(schedule, 1));
}

} // namespace
} // namespace tutti

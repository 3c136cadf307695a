// Shifted critical path where stages are unequal, and other orders that costs decide.
#include "schedule/evaluate.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {

using namespace schedule;
namespace {

Costs scaled_stages(const std::vector<double>& factors, double recompute) {
    Costs costs;
    for (const double k : factors)
        costs.stages.push_back({.forward = k, .backward = k, .weight_gradient = k, .recompute = recompute * k});
    return costs;
}

double time_of(const ScheduleParameters& parameters, const Costs& costs) {
    return evaluate(make_schedule(parameters, costs), costs).time;
}

// Merak's order as its code has it, by stage index; for P of at least 3.
Schedule merak(int ranks, int micro_batches) {
    ScheduleParameters p = resolve({.family = "shifted-critical-path", .ranks = ranks, .micro_batches = micro_batches});
    p.recompute.assign(static_cast<std::size_t>(ranks), Recompute::early);
    p.recompute.back() = Recompute::never;
    Schedule schedule{p, {}, {0}};
    for (int s = 0; s < ranks; ++s) {
        const bool keeps = s == ranks - 1;
        auto add = [&](Work work, int m, bool recomputes) {
            schedule.tasks.push_back({work, recomputes, 0, static_cast<std::uint16_t>(s), m});
        };
        auto forward = [&](int m) { add(Work::forward, m, !keeps); };
        // Early: before it waits for the gradient. Else the gradient comes first.
        auto backward = [&](int m, bool early) {
            if (early) add(Work::recompute, m, false);
            add(Work::full_backward, m, !keeps && !early);
        };
        const int count = micro_batches;
        if (keeps) {
            for (int m = 0; m < count; ++m) {
                forward(m);
                add(Work::full_backward, m, false);
            }
        } else if (s == ranks - 2) {
            for (int m = 0; m < 3; ++m) forward(m);
            backward(0, true);
            backward(1, true);
            for (int m = 3; m < count; ++m) {
                forward(m);
                backward(m - 1, false);
            }
            backward(count - 1, false);
        } else {
            const int ahead = std::min(ranks - s, count);
            for (int m = 0; m < ahead; ++m) forward(m);
            for (int m = 0; m < count; ++m) {
                backward(m, count - m + s < ranks || (s == ranks - 3 && m == 0));
                if (m + ahead < count) forward(m + ahead);
            }
        }
        schedule.first.push_back(static_cast<std::int32_t>(schedule.tasks.size()));
    }
    return schedule;
}

TEST(ShiftedCriticalPath, MeraksOwnOrderHasMeraksTime) {
    for (int p : {3, 4, 5, 8})
        for (int m : {p + 1, 2 * p, 3 * p}) {
            const Costs costs = scaled_stages(std::vector<double>(static_cast<std::size_t>(p), 1.0), 1);
            EXPECT_DOUBLE_EQ(evaluate(merak(p, m), costs).time, m * 4 + (p - 2) * 3) << p << " " << m;
        }
}

TEST(ShiftedCriticalPath, IsNeverSlowerThanMeraksForUnequalStagesAndMostlyFaster) {
    std::mt19937 engine(7);
    int faster = 0;
    for (int trial = 0; trial < 200; ++trial) {
        const int p = std::uniform_int_distribution(3, 6)(engine);
        const int m = std::uniform_int_distribution(p + 1, 3 * p)(engine);
        std::vector<double> factors;
        for (int s = 0; s < p; ++s) factors.push_back(std::uniform_real_distribution(0.5, 1.5)(engine));
        const Costs costs = scaled_stages(factors, 1);
        const double theirs = evaluate(merak(p, m), costs).time;
        const double ours = time_of({.family = "shifted-critical-path", .ranks = p, .micro_batches = m}, costs);
        EXPECT_LE(ours, theirs * (1 + 1e-12)) << "trial " << trial << " P " << p << " M " << m;
        if (ours < theirs * 0.999) ++faster;
    }
    EXPECT_GE(faster, 100);
}

TEST(ShiftedCriticalPath, IsNeverSlowerThanWhatItShifts) {
    std::mt19937 engine(11);
    for (int trial = 0; trial < 100; ++trial) {
        const int p = std::uniform_int_distribution(1, 6)(engine);
        const int m = std::uniform_int_distribution(1, 3 * p)(engine);
        std::vector<double> factors;
        for (int s = 0; s < p; ++s) factors.push_back(std::uniform_real_distribution(0.5, 1.5)(engine));
        const Costs costs = scaled_stages(factors, trial % 2);
        const double ours = time_of({.family = "shifted-critical-path", .ranks = p, .micro_batches = m}, costs);
        for (const char* family : {"1f1b", "early-recompute", "last-stage-without-recompute"})
            EXPECT_LE(ours, time_of({.family = family, .ranks = p, .micro_batches = m}, costs) * (1 + 1e-12)) << family;
    }
}

TEST(ShiftedCriticalPath, AbsorbsAHeavierLastStage) {
    const Costs costs = scaled_stages({1, 1, 1, 1.33}, 1);
    const double plain = time_of({.family = "1f1b", .ranks = 4, .micro_batches = 8}, costs);
    const double shifted = time_of({.family = "shifted-critical-path", .ranks = 4, .micro_batches = 8}, costs);
    EXPECT_NEAR(plain, 54.56, 1e-9); // 3F + 8 · 1.33 · 4 + 3(R + B): the last stage sets the pace
    EXPECT_GE(plain / shifted, 1.28);
}

// Eight blocks that get lighter towards the end, as where sequences are pooled. Templates of one stage per rank get
// them in pairs. The order made from the costs keeps all ranks busier than any template, those with two copies of the
// weights included.
TEST(Greedy, BeatsEveryTemplateOnUnequalStages) {
    const std::vector<double> blocks = {2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25};
    std::vector<double> pairs;
    for (std::size_t b = 0; b < blocks.size(); b += 2) pairs.push_back(blocks[b] + blocks[b + 1]);
    const double generated = time_of({.family = "greedy",
                                      .ranks = 4,
                                      .micro_batches = 12,
                                      .stages_per_rank = 2,
                                      .placement = StagePlacement::wave,
                                      .in_flight = 7,
                                      .split_backward = true},
                                     scaled_stages(blocks, 0));
    EXPECT_DOUBLE_EQ(generated, 86.25);
    for (const Family& family : families()) {
        if (family.name == "greedy") continue;
        const ScheduleParameters p = resolve({.family = std::string(family.name), .ranks = 4, .micro_batches = 12});
        EXPECT_LT(generated * 1.05, time_of(p, scaled_stages(p.stages() == 8 ? blocks : pairs, 0))) << family.name;
    }
}

} // namespace
} // namespace tutti

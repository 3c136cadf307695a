#include "offload/residency.h"

#include "base/error.h"
#include "base/philox.h"
#include "memory/liveness.h"
#include "offload/time_points.h"
#include "program/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tutti {

using namespace memory;
using namespace offload;
namespace {

constexpr Bytes unit{buffer_alignment};

// One resident per time point, as the layers of a forward and a backward.
ResidencyProblem there_and_back(int layers, std::int64_t capacity) {
    ResidencyProblem problem{.capacity = capacity * unit};
    problem.residents.assign(static_cast<std::size_t>(layers), unit);
    problem.host = {.in = buffer_alignment, .out = buffer_alignment};
    for (int i = 0; i < 2 * layers; ++i) {
        problem.uses.push_back({i, i < layers ? i : 2 * layers - 1 - i, Access::read});
        problem.seconds.push_back(1);
    }
    return problem;
}

// Runs steps of a plan on toy memories, copying as soon as the plan allows. Contents are numbers: how often a resident
// was changed.
void replay(const ResidencyProblem& problem, const ResidencyPlan& plan) {
    const std::int32_t time_points = problem.time_points();
    std::vector<std::int64_t> place(problem.residents.size(), 0), truth(problem.residents.size(), 0);
    std::map<const ResidencyInterval*, std::int64_t> content; // of intervals that are there, or coming
    Bytes fetched, returned;
    auto size_of = [&](const ResidencyInterval& interval) {
        return problem.residents[static_cast<std::size_t>(interval.resident)];
    };
    auto evict = [&](const ResidencyInterval& interval) {
        if (interval.returned) {
            place[static_cast<std::size_t>(interval.resident)] = content[&interval];
            returned += size_of(interval);
        }
        content.erase(&interval);
    };
    auto come = [&](const ResidencyInterval& interval, bool first_step) {
        for (const auto& [other, value] : content)
            ASSERT_TRUE(other->offset + size_of(*other).count <= interval.offset ||
                        interval.offset + size_of(interval).count <= other->offset)
                << "residents " << other->resident << " and " << interval.resident << " at one place";
        for (std::int32_t other : interval.after)
            ASSERT_FALSE(content.contains(&plan.intervals[static_cast<std::size_t>(other)]));
        content[&interval] = interval.fetched || first_step ? place[static_cast<std::size_t>(interval.resident)] : -1;
        if (interval.fetched && !first_step) fetched += size_of(interval);
    };
    // What is there, or coming, when a step begins.
    for (const ResidencyInterval& interval : plan.intervals)
        if (interval.always || interval.issue < 0 || interval.last >= time_points) come(interval, true);
    for (std::int32_t now = 0; now < 3 * time_points; ++now) {
        const std::int32_t m = now % time_points;
        if (m == 0) fetched = returned = {};
        for (const ResidencyInterval& interval : plan.intervals)
            if (!interval.always && (interval.issue + time_points) % time_points == m &&
                !(now == 0 && content.contains(&interval))) // brought before
                come(interval, false);
        for (const ResidentUse& use : problem.uses) {
            if (use.time_point != m) continue;
            if (use.on_host) {
                for (const auto& [interval, value] : content)
                    ASSERT_NE(interval->resident, use.resident) << "not on the host";
                std::int64_t& latest = truth[static_cast<std::size_t>(use.resident)];
                std::int64_t& kept = place[static_cast<std::size_t>(use.resident)];
                if (use.needs_content()) {
                    ASSERT_EQ(kept, latest) << "resident " << use.resident << " on the host at " << now;
                }
                if (use.changes_content()) kept = ++latest;
                continue;
            }
            std::int64_t* here = nullptr;
            for (auto& [interval, value] : content) {
                const bool holds = interval->always || (interval->first <= m && m <= interval->last) ||
                                   m + time_points <= interval->last;
                if (interval->resident != use.resident || !holds) continue;
                ASSERT_EQ(here, nullptr) << "twice";
                here = &value;
            }
            std::int64_t& wanted = truth[static_cast<std::size_t>(use.resident)];
            ASSERT_NE(here, nullptr) << "absent at " << m;
            if (use.needs_content()) {
                ASSERT_EQ(*here, wanted) << "resident " << use.resident << " at " << now;
            }
            if (use.changes_content()) *here = ++wanted;
        }
        for (const ResidencyInterval& interval : plan.intervals)
            if (!interval.always && interval.last % time_points == m && content.contains(&interval)) evict(interval);
        if (now == 2 * time_points - 1) {
            EXPECT_EQ(fetched, plan.fetched);
            EXPECT_EQ(returned, plan.returned);
        }
    }
}

TEST(Residency, WhatFitsNeverMoves) {
    const ResidencyProblem problem = there_and_back(4, 4);
    const ResidencyPlan plan = plan_residency(problem);
    EXPECT_EQ(plan.fetched + plan.returned, Bytes{});
    EXPECT_EQ(plan.least, Bytes{});
    EXPECT_EQ(plan.exposed, 0);
    EXPECT_EQ(plan.memory, 4 * unit);
    for (const ResidencyInterval& interval : plan.intervals) EXPECT_TRUE(interval.always);
}

TEST(Residency, ForwardAndBackwardThroughThreeOfFourPlaces) {
    // By hand: 0 1 2 3 3 2 1 0 in a circle. With three places only one layer has to come twice, or two once each.
    const ResidencyPlan plan = plan_residency(there_and_back(4, 3));
    EXPECT_EQ(plan.fetched, 2 * unit);
    EXPECT_EQ(plan.returned, Bytes{});
}

TEST(Residency, BeladyCopiesLessThanOthers) {
    for (const auto& [layers, places] : std::vector<std::pair<int, int>>{{8, 4}, {12, 5}, {20, 7}}) {
        ResidencyProblem problem = there_and_back(layers, places);
        problem.ahead = false;
        const Bytes belady = plan_residency(problem).fetched;
        problem.eviction = Eviction::least_recent;
        const Bytes recent = plan_residency(problem).fetched;
        problem.eviction = Eviction::first_in;
        const Bytes first = plan_residency(problem).fetched;
        EXPECT_EQ(belady, 2 * (layers - places) * unit) << layers;
        EXPECT_LE(belady, recent);
        EXPECT_LE(belady, first);
    }
}

TEST(Residency, ComingAheadHidesTheCopies) {
    ResidencyProblem problem = there_and_back(16, 4);
    problem.ahead = false;
    const ResidencyPlan late = plan_residency(problem);
    problem.ahead = true;
    const ResidencyPlan ahead = plan_residency(problem);
    EXPECT_GT(late.exposed, 20);
    EXPECT_LT(ahead.exposed, 1e-6); // a copy takes as long as a time point
}

TEST(Residency, WhatIsOverwrittenNeitherComesNorGoes) {
    ResidencyProblem problem{.capacity = 2 * unit};
    problem.residents = {unit, unit, unit};
    problem.seconds.assign(6, 1);
    // Written, then read; then dead until the next step writes it again.
    for (int r = 0; r < 3; ++r) {
        problem.uses.push_back({2 * r, r, Access::write});
        problem.uses.push_back({2 * r + 1, r, Access::read});
    }
    const ResidencyPlan plan = plan_residency(problem);
    EXPECT_EQ(plan.fetched + plan.returned, Bytes{});
    replay(problem, plan);
}

TEST(Residency, ChangesGoHome) {
    ResidencyProblem problem = there_and_back(4, 2);
    for (ResidentUse& use : problem.uses)
        if (use.time_point >= 4) use.access = Access::accumulate;
    const ResidencyPlan plan = plan_residency(problem);
    EXPECT_GT(plan.returned, Bytes{});
    replay(problem, plan);
}

// Gradients are made one after the other, are written back, and are used by the host together with residents that are
// only there; the new content comes back for the next step.
TEST(Residency, WorkAtHomeGoesOnBesideTheStep) {
    constexpr int layers = 6;
    ResidencyProblem problem{.capacity = 4 * unit};
    problem.residents.assign(3 * layers, unit); // weights, gradients, states
    problem.host = {.in = buffer_alignment, .out = buffer_alignment};
    for (int i = 0; i < layers; ++i) { // forward
        problem.uses.push_back({i, i, Access::read});
        problem.seconds.push_back(2);
    }
    for (int i = 0; i < layers; ++i) { // backward
        problem.uses.push_back({layers + i, layers - 1 - i, Access::read});
        problem.uses.push_back({layers + i, 2 * layers - 1 - i, Access::write});
        problem.seconds.push_back(4);
    }
    for (int i = 0; i < layers; ++i) {
        for (int resident : {i, layers + i, 2 * layers + i})
            problem.uses.push_back(
                {2 * layers + i, resident, resident < layers ? Access::accumulate : Access::read, true});
        problem.seconds.push_back(0);
    }
    problem.on_host.assign(2 * layers, 0);
    problem.on_host.insert(problem.on_host.end(), layers, 2.0);
    const ResidencyPlan plan = plan_residency(problem);
    replay(problem, plan);
    EXPECT_EQ(plan.returned, layers * unit); // gradients
    for (const ResidencyInterval& interval : plan.intervals)
        EXPECT_LT(interval.resident, 2 * layers) << "states are never fetched";
    // The first layer waits for its update and its way here; the others come while the one before computes.
    EXPECT_GE(plan.exposed, 3);
    EXPECT_LE(plan.exposed, 6);
    EXPECT_LE(plan.least, plan.fetched + plan.returned);
}

// One place, through which all go one after the other: each comes, is changed for a second, and goes.
ResidencyProblem one_after_the_other(std::vector<std::int32_t> order) {
    ResidencyProblem problem{.capacity = unit};
    problem.residents.assign(static_cast<std::size_t>(std::ranges::max(order)) + 1, unit);
    for (std::int32_t resident : order) {
        problem.uses.push_back({problem.time_points(), resident, Access::accumulate});
        problem.seconds.push_back(1);
    }
    constexpr double size = buffer_alignment;
    problem.host = {.in = size, .out = size};
    problem.disk = {.in = size / 3, .out = size / 5};
    return problem;
}

TEST(Residency, HomesOnDiskAreSpreadOverTheStepAndTakeTheDisksTime) {
    ResidencyProblem problem = one_after_the_other({0, 1, 2, 3});
    using enum BackingTier;
    EXPECT_EQ(plan_residency(problem).tiers, (std::vector{host, host, host, host}));
    EXPECT_DOUBLE_EQ(plan_residency(problem).seconds, 4 * (1 + 1 + 1));
    problem.room = 2 * unit;
    EXPECT_EQ(plan_residency(problem).tiers, (std::vector{disk, host, disk, host}));
    EXPECT_DOUBLE_EQ(plan_residency(problem).seconds, 2 * (1 + 1 + 1) + 2 * (3 + 1 + 5));
    problem.room = Bytes{};
    EXPECT_DOUBLE_EQ(plan_residency(problem).seconds, 4 * (3 + 1 + 5));
}

// Three places: while one is at work, one is left and one taken; what the disk gets done of both at once counts then.
TEST(Residency, ADiskMayReadAndWriteInTurns) {
    ResidencyProblem problem = one_after_the_other({0, 1, 2, 3, 4, 5, 6, 7});
    problem.capacity = 3 * unit;
    problem.room = Bytes{};
    problem.eviction = Eviction::first_in; // so that all of them are evicted
    EXPECT_NEAR(plan_residency(problem).seconds, 8 * 5, 1);
    problem.disk.together = 1;
    EXPECT_NEAR(plan_residency(problem).seconds, 8 * (3 + 5), 1);
    problem.disk.together = 1.25;
    EXPECT_GT(plan_residency(problem).seconds, 8 * (3 + 5) / 1.25);
    EXPECT_LT(plan_residency(problem).seconds, 8 * (3 + 5) - 4);
}

TEST(Residency, TheMostCopiedAreInHostMemoryAndThoseUsedAtHome) {
    using enum BackingTier;
    ResidencyProblem problem = one_after_the_other({0, 2, 1, 2});
    problem.room = unit;
    EXPECT_EQ(plan_residency(problem).tiers, (std::vector{disk, disk, host}));
    problem.uses[0].on_host = true;
    EXPECT_EQ(plan_residency(problem).tiers, (std::vector{host, disk, disk})); // there is room for one
    problem.room = 4 * unit;
    EXPECT_EQ(plan_residency(problem).tiers, (std::vector{host, host, host}));
}

TEST(Residency, TooSmallAMemoryIsOneSentence) {
    ResidencyProblem problem = there_and_back(4, 3);
    problem.uses.insert(problem.uses.begin() + 1, {0, 1, Access::read});
    problem.capacity = unit;
    try {
        plan_residency(problem);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("needs 512 B"), std::string::npos) << error.what();
    }
    EXPECT_EQ(least_capacity(problem), 2 * unit);
}

TEST(Residency, RandomStepsHoldTheRules) {
    int planned = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        std::uint64_t draw = 0;
        auto random = [&](std::uint32_t below) { return philox_draw({}, seed, draw++) % below; };
        ResidencyProblem problem;
        problem.residents.resize(1 + random(12));
        Bytes sum;
        for (Bytes& size : problem.residents) {
            size = {1 + random(seed % 2 == 0 ? 256 : 4000)};
            sum += {(size.count + buffer_alignment - 1) / buffer_alignment * buffer_alignment};
        }
        const std::int32_t time_points = 1 + static_cast<std::int32_t>(random(40));
        for (std::int32_t m = 0; m < time_points; ++m) {
            problem.seconds.push_back(random(3));
            const bool on_host = seed % 3 == 0 && random(4) == 0;
            if (on_host) {
                problem.on_host.resize(problem.seconds.size());
                problem.on_host.back() = random(5);
            }
            for (std::uint32_t i = random(3); i > 0; --i)
                problem.uses.push_back(
                    {m, static_cast<std::int32_t>(random(static_cast<std::uint32_t>(problem.residents.size()))),
                     static_cast<Access>(random(3)), on_host});
        }
        problem.host = {.latency = 0.1, .in = 1000, .out = 1000};
        problem.ahead = random(2) == 0;
        problem.eviction = static_cast<Eviction>(random(3));
        const Bytes least = least_capacity(problem);
        problem.capacity = least + Bytes{random(static_cast<std::uint32_t>(sum.count) + 1)};
        ResidencyPlan plan;
        try {
            plan = plan_residency(problem);
        } catch (const Error&) { // in pieces
            EXPECT_LT(problem.capacity, 2 * least + Bytes{8000}) << seed;
            continue;
        }
        EXPECT_LE(plan.memory, problem.capacity);
        EXPECT_LE(plan.least, plan.fetched + plan.returned) << seed;
        EXPECT_GE(plan.exposed, -1e-9);
        replay(problem, plan);
        if (HasFatalFailure()) FAIL() << "seed " << seed;
        ++planned;
    }
    EXPECT_GT(planned, 250); // the rest: free memory lies in pieces
}

// A stage of layers with a chunk and a piece of the stash each, its micro-batches taking turns with up to `in_flight`
// of them between forward and backward.
Program random_program(const std::function<std::uint32_t(std::uint32_t)>& random) {
    const auto layers = static_cast<std::int32_t>(1 + random(6));
    Program program;
    program.trains = true;
    program.chunk_dtypes.fill(DType::float32);
    program.micro_batches = static_cast<std::int32_t>(1 + random(5));
    program.stages.push_back({});
    for (std::int32_t i = 0; i < layers; ++i) {
        program.chunk_elements.push_back(64 * (1 + random(4)));
        program.stages[0].pieces.push_back({1 + random(3000)});
    }
    auto chunk = [&](Region region, std::int32_t i, Access access) {
        const std::int64_t elements = program.chunk_elements[static_cast<std::size_t>(i)];
        return Argument{{region, i, 0}, {DType::float32, {elements}}, {1}, access};
    };
    auto piece = [](std::int32_t i, Access access) {
        return Argument{{Region::offloaded, i, 0}, {DType::boolean, {1}}, {1}, access};
    };
    Segment forward{.kind = TaskKind::forward}, backward{.kind = TaskKind::backward}, update{.kind = TaskKind::update};
    for (std::int32_t i = 0; i < layers; ++i) {
        Instruction one{.op = "forward"};
        one.inputs.push_back(chunk(Region::weights, i, Access::read));
        if (i > 0) one.inputs.push_back(piece(i - 1, Access::read));
        one.outputs.push_back(piece(i, Access::write));
        forward.instructions.push_back(one);
    }
    for (std::int32_t i = layers - 1; i >= 0; --i) {
        Instruction one{.op = "backward"};
        one.inputs = {piece(i, Access::read), chunk(Region::weights, i, Access::read)};
        if (i > 0 && random(2) == 0) one.inputs.push_back(piece(i - 1, Access::read));
        one.outputs = {chunk(Region::gradients, i, Access::accumulate)};
        backward.instructions.push_back(one);
        Instruction last{.op = "adamw", .kind = InstructionKind::update, .only_last = random(2) == 0};
        last.inputs = {chunk(Region::gradients, i, Access::read)};
        last.outputs = {chunk(Region::weights, i, Access::write), chunk(Region::moments1, i, Access::write)};
        (last.only_last ? backward : update).instructions.push_back(last);
    }
    program.segments = {forward, backward, update};
    const auto in_flight = static_cast<std::int32_t>(1 + random(3));
    for (std::int32_t m = 0; m < program.micro_batches + in_flight; ++m) {
        if (m < program.micro_batches)
            program.step.push_back({.kind = TaskKind::forward, .micro_batch = m, .segment = 0});
        if (m >= in_flight)
            program.step.push_back({.kind = TaskKind::backward,
                                    .micro_batch = m - in_flight,
                                    .segment = 1,
                                    .last = m - in_flight + 1 == program.micro_batches});
    }
    program.step.push_back({.kind = TaskKind::update, .segment = 2});
    assign_slots(program);
    return program;
}

TEST(Residency, StashedActivationsComeAndGoWithTheChunks) {
    int moved = 0;
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        std::uint64_t draw = 0;
        auto random = [&](std::uint32_t below) { return philox_draw({}, seed, draw++) % below; };
        const Program program = random_program(random);
        StepTimePoints step = time_points_of(program, [](const Instruction&, const Task&) { return 1.0; });
        ResidencyProblem& problem = step.problem;
        problem.host = {.latency = 0.1, .in = 1000, .out = 1000};
        Bytes all;
        for (const Bytes& size : problem.residents) all += size;
        problem.capacity = enough_capacity(problem) + Bytes{random(static_cast<std::uint32_t>(all.count))};
        const ResidencyPlan plan = plan_residency(problem);
        EXPECT_LE(plan.memory, problem.capacity);
        EXPECT_LE(plan.least, plan.fetched + plan.returned) << seed;
        replay(problem, plan);
        if (HasFatalFailure()) FAIL() << "seed " << seed;
        // What a forward writes is never fetched for it, and a backward leaves nothing to return.
        for (const ResidencyInterval& interval : plan.intervals) {
            if (step.residents[static_cast<std::size_t>(interval.resident)].region != Region::offloaded) continue;
            const auto task =
                static_cast<std::size_t>(step.tasks[static_cast<std::size_t>(interval.first % problem.time_points())]);
            EXPECT_TRUE(interval.always || interval.fetched == (program.step[task].kind == TaskKind::backward)) << seed;
            moved += interval.fetched;
        }
    }
    EXPECT_GT(moved, 100);
}

TEST(Residency, EnoughIsEnoughAndSoIsMore) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::uint64_t draw = 0;
        auto random = [&](std::uint32_t below) { return philox_draw({}, seed, draw++) % below; };
        ResidencyProblem problem =
            time_points_of(random_program(random), [](const Instruction&, const Task&) { return 1.0; }).problem;
        problem.host = {.latency = 0.1, .in = 1000, .out = 1000};
        const Bytes enough = enough_capacity(problem);
        EXPECT_GE(enough, least_capacity(problem));
        for (const std::int64_t percent : {100, 101, 104, 109, 117, 130}) {
            problem.capacity = {enough.count * percent / 100};
            EXPECT_NO_THROW(plan_residency(problem)) << seed << ": " << percent;
        }
    }
}

} // namespace
} // namespace tutti

// The simulator walks Programs, the evaluator a sorted list: both must give the same numbers, to the last digit.
#include "base/error.h"
#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/lower.h"
#include "simulate/simulate.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {

using namespace schedule;
using namespace simulate;
namespace {

bool is_compute(TaskKind kind) {
    return kind == TaskKind::forward || kind == TaskKind::recompute || kind == TaskKind::backward ||
           kind == TaskKind::weight_gradient;
}

void expect_agreement(const Schedule& schedule, const Costs& costs) {
    const Evaluation evaluation = evaluate(schedule, costs);
    const std::vector<Program> programs = lower(schedule, costs);
    const Simulation simulation = simulate::simulate(programs);
    EXPECT_EQ(simulation.time, evaluation.time);
    ASSERT_EQ(static_cast<int>(programs.size()), schedule.ranks());
    for (int r = 0; r < schedule.ranks(); ++r) {
        std::size_t next = static_cast<std::size_t>(schedule.first[r]);
        double finish = 0;
        for (std::size_t i = 0; i < programs[r].step.size(); ++i) {
            const SimulatedTask& task = simulation.ranks[r][i];
            if (programs[r].step[i].kind != TaskKind::receive) finish = std::max(finish, task.end);
            if (!is_compute(programs[r].step[i].kind)) continue;
            EXPECT_EQ(programs[r].step[i].stage, schedule.tasks[next].stage);
            EXPECT_EQ(programs[r].step[i].micro_batch, schedule.tasks[next].micro_batch);
            EXPECT_EQ(task.start, evaluation.start[next]);
            EXPECT_EQ(task.end, evaluation.end[next]);
            ++next;
        }
        EXPECT_EQ(next, static_cast<std::size_t>(schedule.first[r + 1]));
        EXPECT_GE(finish, evaluation.ranks[r].last_end);
    }
}

ScheduleParameters random_parameters(std::mt19937& engine) {
    auto number = [&](int from, int to) { return std::uniform_int_distribution(from, to)(engine); };
    const auto all = families();
    ScheduleParameters p{.family = std::string(all[number(0, static_cast<int>(all.size()) - 1)].name)};
    p.ranks = 2 * number(1, 3);
    p.micro_batches = 2 * p.ranks * number(1, 2);
    if (p.family == "greedy") {
        p.stages_per_rank = number(1, 3);
        p.model_replicas = number(1, 2);
        p.placement = static_cast<StagePlacement>(number(0, 2));
        p.split_backward = number(0, 1) == 1;
    }
    return p;
}

Costs random_costs(std::mt19937& engine, const ScheduleParameters& p) {
    auto real = [&](double to) { return std::uniform_real_distribution(0.0, to)(engine); };
    const bool recompute = real(1) < 0.5, synchronise = real(1) < 0.7;
    Costs costs;
    for (int s = 0; s < p.stages(); ++s) {
        StageCosts stage{.forward = real(2), .backward = real(2), .weight_gradient = real(2)};
        if (recompute) stage.recompute = real(2);
        if (synchronise) stage.synchronise = real(5);
        if (synchronise) stage.update = real(1);
        costs.stages.push_back(stage);
    }
    costs.communication = {real(1)};
    costs.blocking = real(1) < 0.5;
    return costs;
}

TEST(Simulate, AgreesWithTheEvaluatorToTheLastDigit) {
    std::mt19937 engine(1);
    for (int trial = 0; trial < 400; ++trial) {
        const ScheduleParameters parameters = random_parameters(engine);
        SCOPED_TRACE(fmt::format("trial {}: {} P={} M={}", trial, parameters.family, parameters.ranks,
                                 parameters.micro_batches));
        const Costs costs = random_costs(engine, resolve(parameters));
        expect_agreement(make_schedule(parameters, costs), costs);
        if (::testing::Test::HasFailure()) return;
    }
}

// One rank, two stages: their gradients are synchronised beside the computing, one after the other, then updated.
TEST(Simulate, SynchronisationHidesBehindTheWeightGradientsThatAreLeft) {
    const ScheduleParameters parameters{.family = "greedy", .ranks = 1, .micro_batches = 1, .stages_per_rank = 2};
    Costs costs = uniform_costs(resolve(parameters), {.forward = 2, .backward = 2, .weight_gradient = 2});
    for (StageCosts& stage : costs.stages) stage.synchronise = 3, stage.update = 0.5;
    const Schedule schedule = make_schedule(parameters, costs);
    // F F.1 BW.1 BW: 0-1 1-2 2-4 4-6. Stage 1 synchronises 4-7, stage 0 7-10, two updates of 0.5.
    const Evaluation result = evaluate(schedule, costs);
    EXPECT_DOUBLE_EQ(result.time, 11);
    EXPECT_DOUBLE_EQ(result.ranks[0].last_end, 6);
    EXPECT_DOUBLE_EQ(result.ranks[0].idle.communication, 4);
    EXPECT_DOUBLE_EQ(result.ranks[0].busy, 7);
    EXPECT_DOUBLE_EQ(result.bubble, 1 - 7.0 / 11);
    // Where it blocks it begins after the tasks: 6-9 9-12.
    costs.blocking = true;
    EXPECT_DOUBLE_EQ(evaluate(schedule, costs).time, 13);
    expect_agreement(schedule, costs);
}

// Two mirrored copies hold each stage on both ranks: neither rank can synchronise before both are done.
TEST(Simulate, CopiesSynchroniseWithEachOther) {
    const ScheduleParameters parameters{.family = "chimera", .ranks = 2, .micro_batches = 2};
    Costs costs = uniform_costs(resolve(parameters), {.forward = 1, .backward = 1, .weight_gradient = 1});
    costs.stages[0].synchronise = 1;
    const Schedule schedule = make_schedule(parameters, costs);
    const Evaluation result = evaluate(schedule, costs);
    EXPECT_DOUBLE_EQ(result.ranks[0].finish, result.ranks[1].finish);
    EXPECT_DOUBLE_EQ(result.time, 7); // six of work on both, no bubble, and the last gradient's synchronisation
    expect_agreement(schedule, costs);
}

TEST(Simulate, StashSlotsAreWhatTheScheduleHolds) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 4, .micro_batches = 8};
    const Costs costs = uniform_costs(resolve(parameters), {});
    const std::vector<Program> programs = lower(make_schedule(parameters, costs), costs);
    for (int r = 0; r < 4; ++r) EXPECT_EQ(programs[r].stages[0].slots[slotted(Region::stash)], 4 - r);
}

TEST(Simulate, ProgramsThatWaitForEachOtherAreADeadlock) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 2, .micro_batches = 1};
    const Costs costs = uniform_costs(resolve(parameters), {});
    std::vector<Program> programs = lower(make_schedule(parameters, costs), costs);
    std::erase_if(programs[1].step, [](const Task& task) { return task.kind == TaskKind::send; });
    EXPECT_THROW(simulate::simulate(programs), Error);
}

Plan plan_with(const ScheduleParameters& parameters, const Costs& costs) {
    Plan plan;
    plan.model = Plan::no_model;
    plan.workload = {16, parameters.micro_batches, 1};
    plan.mesh.pipe = parameters.ranks;
    plan.schedule = {make_schedule(parameters, costs), costs};
    return plan;
}

TEST(PlannedSchedule, SurvivesTheFileToTheLastDigit) {
    std::mt19937 engine(5);
    for (int trial = 0; trial < 60; ++trial) {
        const ScheduleParameters parameters = random_parameters(engine);
        const Plan plan = plan_with(parameters, random_costs(engine, resolve(parameters)));
        const Plan again = parse_plan(to_json(plan), "plan.json");
        EXPECT_EQ(again, plan) << parameters.family;
        EXPECT_EQ(simulate::simulate(again).time, evaluate(plan.schedule->schedule, plan.schedule->costs).time);
    }
}

TEST(PlannedSchedule, IsNotThereUnlessGiven) {
    Plan plan;
    plan.workload = {16, 8, 1};
    EXPECT_EQ(to_json(plan).find("schedule"), std::string::npos);
    EXPECT_FALSE(parse_plan(to_json(plan), "plan.json").schedule);
    EXPECT_THROW(simulate::simulate(plan), Error);
}

TEST(PlannedSchedule, ThatDoesNotRunIsRefused) {
    const ScheduleParameters parameters{.family = "1f1b", .ranks = 2, .micro_batches = 2};
    const std::string good = to_json(plan_with(parameters, uniform_costs(resolve(parameters), {})));
    auto expect_refused = [&](const std::string& from, const std::string& to) {
        std::string bad = good;
        const std::size_t at = bad.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        bad.replace(at, from.size(), to);
        try {
            parse_plan(bad, "plan.json");
            FAIL() << from << " -> " << to;
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("plan.json"), std::string::npos) << error.what();
        }
    };
    expect_refused("F0 F1 BW0 BW1", "F0 F1 BW0");
    expect_refused("F0 F1 BW0 BW1", "F0 F1 BW0 BW1 BW1");
    expect_refused("F0 F1 BW0 BW1", "F0 BW0 BW1 F1");
    expect_refused("F0 F1 BW0 BW1", "F0 F1 BW0 X1");
    expect_refused("F0 F1 BW0 BW1", "F0 F1 BW0 BW99999999999999");
    expect_refused("\"ranks\": 2", "\"ranks\": 0");
    expect_refused("\"ranks\": 2", "\"ranks\": 2000000000");
    expect_refused("\"micro_batches\": 2", "\"micro_batches\": 2000000000");
    expect_refused("\"placement\": \"loop\"", "\"placement\": \"heap\"");
    expect_refused("\"family\": \"1f1b\"", "\"family\": \"2f2b\"");
    expect_refused("\"forward\": 1.0", "\"forward\": -1.0");
    expect_refused("\"forward\": 1.0", "\"forward\": \"fast\"");
}

} // namespace
} // namespace tutti

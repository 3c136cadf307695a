#include "base/error.h"
#include "planner/strategies/exhaustive.h"
#include "planner/strategies/stages.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

namespace tutti::planner::strategies {

namespace {

using Random = std::mt19937;

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

struct Shape {
    int nodes = 6, options = 3, further_edges = 2; // beside a chain
    bool forbids = false;
    int largest = 20;
};

Problem random_problem(Random& random, const Shape& shape) {
    Problem problem;
    for (int n = 0; n < shape.nodes; ++n) {
        ChoiceNode node{"n" + std::to_string(n), 1 + below(random, 3), {}};
        const int options = 1 + below(random, shape.options);
        for (int o = 0; o < options; ++o)
            node.options.push_back(
                {below(random, shape.largest), below(random, shape.largest), below(random, shape.largest)});
        problem.nodes.push_back(node);
    }
    auto connect = [&](int a, int b) {
        ChoiceEdge edge{a, b, 1 + below(random, 3), {}};
        const std::size_t cells = problem.nodes[static_cast<std::size_t>(a)].options.size() *
                                  problem.nodes[static_cast<std::size_t>(b)].options.size();
        for (std::size_t i = 0; i < cells; ++i) {
            EdgeCost cost{below(random, 4) == 0 ? below(random, shape.largest) : 0, below(random, shape.largest),
                          below(random, 3) == 0 ? below(random, shape.largest) : 0};
            if (shape.forbids && below(random, 5) == 0) cost.time = forbidden;
            edge.costs.push_back(cost);
        }
        problem.edges.push_back(edge);
    };
    for (int n = 0; n + 1 < shape.nodes; ++n) connect(below(random, 2) == 0 ? n : below(random, n + 1), n + 1);
    for (int e = 0; e < shape.further_edges; ++e) {
        const int a = below(random, shape.nodes), b = below(random, shape.nodes);
        if (a != b) connect(a, b); // either direction, and several between two nodes
    }
    return problem;
}

std::vector<std::pair<Amount, Amount>> values_of(const std::vector<Solution>& front) {
    std::vector<std::pair<Amount, Amount>> values;
    for (const Solution& solution : front) values.emplace_back(solution.redundancy, solution.time);
    return values;
}

void add_time_points(Random& random, Problem& problem) {
    MemoryCap cap;
    for (int m = 0; m < 3; ++m) {
        TimePoint time_point{"time point " + std::to_string(m), below(random, 10), {}, {}};
        for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
            if (below(random, 3) == 0) continue;
            TimePoint::Part part{static_cast<int>(n), {}};
            for (std::size_t o = 0; o < problem.nodes[n].options.size(); ++o) part.bytes.push_back(below(random, 20));
            time_point.nodes.push_back(part);
        }
        for (std::size_t e = 0; e < problem.edges.size(); e += 2) {
            TimePoint::Part part{static_cast<int>(e), {}};
            for (std::size_t i = 0; i < problem.edges[e].costs.size(); ++i) part.bytes.push_back(below(random, 5));
            time_point.edges.push_back(part);
        }
        cap.time_points.push_back(time_point);
    }
    cap.most = 1000000;
    problem.cap = cap;
}

TEST(Elimination, FindsTheFrontOfEverySmallProblem) {
    Random random(1);
    for (int i = 0; i < 400; ++i) {
        const Problem problem = random_problem(
            random, {1 + below(random, 7), 1 + below(random, 4), below(random, 5), i % 2 == 1, i % 3 == 0 ? 3 : 40});
        const Elimination found = pareto_front(problem);
        ASSERT_TRUE(found.solved) << found.reason;
        const std::vector<Solution> front = exhaustive_front(problem);
        ASSERT_EQ(values_of(found.front), values_of(front)) << "problem " << i;
        for (const Solution& solution : found.front) ASSERT_EQ(*evaluate(problem, solution.options), solution);
        const Elimination least = eliminate(problem, Goal::Least::redundancy);
        const Elimination fastest = eliminate(problem, Goal::Least::time);
        ASSERT_EQ(least.front.empty(), front.empty());
        if (front.empty()) continue;
        ASSERT_EQ(least.front[0].redundancy, front.front().redundancy);
        ASSERT_EQ(fastest.front[0].time, front.back().time);
        ASSERT_EQ(fastest.front[0].redundancy, front.back().redundancy);
    }
}

TEST(IntegerProgram, AgreesInBothStages) {
    Random random(2);
    for (int i = 0; i < 50; ++i) {
        const Problem problem =
            random_problem(random, {2 + below(random, 5), 1 + below(random, 4), below(random, 4), i % 2 == 1, 30});
        const std::vector<Solution> front = exhaustive_front(problem);
        const ProgramResult least = solve_program(problem, {Goal::Least::redundancy});
        if (front.empty()) {
            ASSERT_EQ(least.status, ProgramResult::Status::infeasible) << "problem " << i;
            ASSERT_FALSE(least.reason.empty());
            continue;
        }
        ASSERT_EQ(least.status, ProgramResult::Status::optimal) << "problem " << i;
        ASSERT_EQ(least.solution->redundancy, front.front().redundancy) << "problem " << i;
        ASSERT_EQ(least.gap, 0);
        const ProgramResult fastest = solve_program(problem, {Goal::Least::time});
        ASSERT_EQ(fastest.solution->time, front.back().time) << "problem " << i;

        StagesOptions options;
        options.epsilons = {0, 0.3, 1};
        options.solver = Solver::program;
        const StagesResult program = solve_stages(problem, options);
        options.solver = Solver::elimination;
        const StagesResult elimination = solve_stages(problem, options);
        ASSERT_EQ(program.points.size(), elimination.points.size());
        for (std::size_t p = 0; p < program.points.size(); ++p) {
            const Solution &a = program.points[p].solution, &b = elimination.points[p].solution;
            ASSERT_EQ(a.redundancy, b.redundancy) << "problem " << i << ", point " << p;
            ASSERT_EQ(a.time, b.time) << "problem " << i << ", point " << p;
            // and the definition of stage B
            const Amount bound =
                redundancy_bound(front.front().redundancy, front.back().redundancy, program.points[p].epsilon);
            Amount fast = forbidden;
            for (const Solution& s : front)
                if (s.redundancy <= bound) fast = std::min(fast, s.time);
            ASSERT_EQ(a.time, fast);
        }
    }
}

TEST(IntegerProgram, KeepsToACapAtEveryMoment) {
    Random random(3);
    int capped = 0;
    for (int i = 0; i < 30; ++i) {
        Problem problem = random_problem(random, {5, 3, 2, i % 2 == 1, 30});
        add_time_points(random, problem);
        Amount least_peak = forbidden, fast = forbidden;
        for_each_choice(problem, [&](const Solution& s) { least_peak = std::min(least_peak, s.peak); });
        if (least_peak == forbidden) continue;
        ASSERT_EQ(solve_program(problem, {Goal::Least::peak}).solution->peak, least_peak);
        problem.cap->most = least_peak + below(random, 10);
        for_each_choice(problem, [&](const Solution& s) { fast = std::min(fast, s.time); });
        const ProgramResult found = solve_program(problem, {Goal::Least::time});
        ASSERT_EQ(found.status, ProgramResult::Status::optimal);
        ASSERT_EQ(found.solution->time, fast) << "problem " << i;
        ASSERT_LE(found.solution->peak, problem.cap->most);
        Problem open = problem;
        open.cap.reset();
        capped += eliminate(open, Goal::Least::time).front[0].time < fast ? 1 : 0;

        problem.cap->most = least_peak - 1;
        const ProgramResult none = solve_program(problem, {Goal::Least::time});
        ASSERT_EQ(none.status, ProgramResult::Status::infeasible);
        ASSERT_EQ(none.reason, "the least that any choice needs is " + std::to_string(least_peak) +
                                   " bytes, 1 more than the cap of " + std::to_string(least_peak - 1));
    }
    EXPECT_GT(capped, 5); // else the cap was never in the way
}

TEST(IntegerProgram, IsQuiet) {
    Random random(4);
    const Problem problem = random_problem(random, {7, 4, 5, false, 1000});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    solve_program(problem, {Goal::Least::redundancy});
    fflush(stdout);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(IntegerProgram, SolvesNumbersOfTheSizeOfRealModels) {
    Random random(5);
    for (int i = 0; i < 10; ++i) {
        Problem problem = random_problem(random, {6, 4, 3, false, 1000});
        for (ChoiceNode& node : problem.nodes)
            for (OptionCost& option : node.options)
                option.redundancy *= 12345678901, option.transient *= 1234567890, option.time *= 7654321;
        for (ChoiceEdge& edge : problem.edges)
            for (EdgeCost& cost : edge.costs) cost.redundancy *= 12345678901, cost.time *= 7654321;
        const std::vector<Solution> front = exhaustive_front(problem);
        EXPECT_EQ(solve_program(problem, {Goal::Least::redundancy}).solution->redundancy, front.front().redundancy);
        EXPECT_EQ(solve_program(problem, {Goal::Least::time}).solution->time, front.back().time);
    }
}

TEST(IntegerProgram, StopsAtItsTimeLimit) {
    Random random(6);
    const Problem problem = random_problem(random, {40, 12, 120, false, 100000});
    const ProgramResult found = solve_program(problem, {Goal::Least::time}, {0.01, 0});
    EXPECT_EQ(found.status, ProgramResult::Status::stopped);
    EXPECT_GT(found.variables, 1000);
}

TEST(Elimination, SaysWhereItGivesUp) {
    Random random(7);
    Problem problem = random_problem(random, {12, 6, 60, false, 100});
    Elimination found = pareto_front(problem, {100, 1e7});
    EXPECT_FALSE(found.solved);
    EXPECT_NE(found.reason.find("combinations of options; the limit is 100"), std::string::npos) << found.reason;
    found = pareto_front(problem, {1e9, 10});
    EXPECT_FALSE(found.solved);
    EXPECT_NE(found.reason.find("more than 10 combinations of costs"), std::string::npos) << found.reason;
    add_time_points(random, problem);
    EXPECT_FALSE(pareto_front(problem).solved);
}

TEST(Stages, SayWhyNothingIsAllowed) {
    Problem problem;
    problem.nodes = {{"first", 1, {{}, {}}}, {"second", 1, {{}}}, {"third", 1, {{}}}};
    problem.edges = {{0, 1, 1, {{0, 1}, {0, 2}}}, {1, 2, 1, {{0, forbidden}}}};
    try {
        solve_stages(problem);
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "no strategy of second goes together with one of third");
    }
    problem.edges[1].costs[0].time = 0;
    EXPECT_EQ(solve_stages(problem).points.size(), 1U);
    StagesOptions options;
    options.epsilons = {1.5};
    EXPECT_THROW(solve_stages(problem, options), Error);
}

// Options that another replaces at no loss are left out, whatever direction their edges have.
TEST(Reduction, KeepsTheFront) {
    Random random(8);
    std::size_t before = 0, after = 0;
    for (int i = 0; i < 100; ++i) {
        const Problem problem = random_problem(random, {5, 5, 2, i % 2 == 1, 3});
        const Reduced few = reduced(problem);
        for (const ChoiceNode& node : problem.nodes) before += node.options.size();
        for (const ChoiceNode& node : few.problem.nodes) after += node.options.size();
        ASSERT_EQ(values_of(exhaustive_front(few.problem)), values_of(exhaustive_front(problem)));
    }
    EXPECT_LT(after, before);
}

} // namespace
} // namespace tutti::planner::strategies

#include "planner/strategies/stages.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace tutti::planner::strategies {
namespace {

using Least = Goal::Least;

void add(std::vector<ParetoPoint>& points, double epsilon, Solution solution) {
    const bool there = std::ranges::any_of(points, [&](const ParetoPoint& point) {
        return point.solution.redundancy == solution.redundancy && point.solution.time == solution.time;
    });
    if (!there) points.push_back({epsilon, std::move(solution)});
}

// The front is all that can be asked for.
void pick(const std::vector<Solution>& front, const StagesOptions& options, StagesResult& result) {
    for (double epsilon : options.epsilons) {
        const Amount bound = redundancy_bound(front.front().redundancy, front.back().redundancy, epsilon);
        auto above = std::ranges::upper_bound(front, bound, {}, &Solution::redundancy);
        add(result.points, epsilon, *std::prev(above));
    }
}

class Programs {
  public:
    Programs(const Problem& problem, const StagesOptions& options, StagesResult& result)
        : problem_(problem), options_(options), result_(result) {}

    void run() {
        const Solution least = solve({Least::redundancy, {}, {}});
        const Solution fastest = tidy(solve({Least::time, {}, {}}));
        for (double epsilon : options_.epsilons) {
            const Amount bound = redundancy_bound(least.redundancy, fastest.redundancy, epsilon);
            add(result_.points, epsilon, bound >= fastest.redundancy ? fastest : tidy(solve({Least::time, bound, {}})));
        }
    }

  private:
    // Of all that are as fast, one of the least redundancy.
    Solution tidy(const Solution& solution) { return solve({Least::redundancy, {}, solution.time}); }

    Solution solve(const Goal& goal) {
        ProgramResult found = solve_program(problem_, goal, options_.program);
        if (found.status == ProgramResult::Status::infeasible) fail("{}", found.reason);
        if (!found.solution)
            fail("the integer program of {} variables found no choice within {} s; allow it more time", found.variables,
                 options_.program.seconds);
        result_.worst_gap = std::max(result_.worst_gap, found.gap);
        result_.proven = result_.proven && found.status == ProgramResult::Status::optimal;
        const Solution solution = *found.solution;
        result_.programs.push_back(std::move(found));
        return solution;
    }

    const Problem& problem_;
    const StagesOptions& options_;
    StagesResult& result_;
};

} // namespace

Amount redundancy_bound(Amount least, Amount of_fastest, double epsilon) {
    return least + static_cast<Amount>(std::floor(epsilon * static_cast<double>(of_fastest - least)));
}

StagesResult solve_stages(const Problem& problem, const StagesOptions& options) {
    for (double epsilon : options.epsilons)
        if (!(epsilon >= 0 && epsilon <= 1))
            fail("epsilon is {}, but goes from 0 (memory first) to 1 (time first)", epsilon);
    check(problem);
    StagesResult result;
    if (options.solver != Solver::program) {
        result.elimination = pareto_front(problem, options.elimination);
        if (result.elimination.solved && !result.elimination.front.empty()) {
            result.solver = Solver::elimination;
            pick(result.elimination.front, options, result);
            return result;
        }
        if (options.solver == Solver::elimination && !result.elimination.solved)
            fail("the elimination program cannot solve this: {}", result.elimination.reason);
    }
    result.solver = Solver::program;
    Programs(problem, options, result).run();
    std::ranges::stable_sort(result.points, {}, [](const ParetoPoint& point) { return point.solution.redundancy; });
    return result;
}

} // namespace tutti::planner::strategies

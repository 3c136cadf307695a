// Every choice of a problem, one after the other: what the solvers are held to.
#pragma once

#include "planner/strategies/problem.h"

#include <algorithm>
#include <functional>

namespace tutti::planner::strategies {

inline void for_each_choice(const planner::strategies::Problem& problem,
                            const std::function<void(const planner::strategies::Solution&)>& use) {
    std::vector<int> options(problem.nodes.size(), 0);
    while (true) {
        if (const auto solution = planner::strategies::evaluate(problem, options);
            solution && planner::strategies::fits(problem, *solution))
            use(*solution);
        std::size_t n = 0;
        while (n < options.size() && ++options[n] == static_cast<int>(problem.nodes[n].options.size()))
            options[n++] = 0;
        if (n == options.size()) return;
    }
}

inline std::vector<planner::strategies::Solution> exhaustive_front(const planner::strategies::Problem& problem) {
    std::vector<planner::strategies::Solution> all, front;
    for_each_choice(problem, [&](const planner::strategies::Solution& solution) { all.push_back(solution); });
    std::ranges::sort(all, {}, [](const planner::strategies::Solution& s) { return std::pair(s.redundancy, s.time); });
    for (const planner::strategies::Solution& solution : all)
        if (front.empty() || solution.time < front.back().time) front.push_back(solution);
    return front;
}

} // namespace tutti::planner::strategies

// Every choice of a problem, one after the other: what the solvers are held to.
#pragma once

#include "planner/intraop/problem.h"

#include <algorithm>
#include <functional>

namespace tutti::intraop {

inline void for_each_choice(const Problem& problem, const std::function<void(const Solution&)>& use) {
    std::vector<int> options(problem.nodes.size(), 0);
    while (true) {
        if (const auto solution = evaluate(problem, options); solution && fits(problem, *solution)) use(*solution);
        std::size_t n = 0;
        while (n < options.size() && ++options[n] == static_cast<int>(problem.nodes[n].options.size()))
            options[n++] = 0;
        if (n == options.size()) return;
    }
}

inline std::vector<Solution> exhaustive_front(const Problem& problem) {
    std::vector<Solution> all, front;
    for_each_choice(problem, [&](const Solution& solution) { all.push_back(solution); });
    std::ranges::sort(all, {}, [](const Solution& s) { return std::pair(s.redundancy, s.time); });
    for (const Solution& solution : all)
        if (front.empty() || solution.time < front.back().time) front.push_back(solution);
    return front;
}

} // namespace tutti::intraop

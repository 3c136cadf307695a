// Independent pieces of work on a few threads. Every piece writes to a place of its own, so what comes out does not
// depend on how many threads there are.
#pragma once

#include <cstddef>
#include <functional>

namespace tutti::planner {

int worker_threads(); // as many as the machine has cores, at most 8

// work(i) for every i below `count`. Where some throw, the first of them in order does so to the caller.
void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

} // namespace tutti::planner

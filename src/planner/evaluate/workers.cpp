#include "planner/evaluate/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace tutti::planner {

int worker_threads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8); }

void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> thrown(count);
    auto take_turns = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                thrown[i] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::size_t t = 1; t < std::min(count, static_cast<std::size_t>(threads)); ++t)
            others.emplace_back(take_turns);
        take_turns();
    }
    for (const std::exception_ptr& one : thrown)
        if (one) std::rethrow_exception(one);
}

} // namespace tutti::planner

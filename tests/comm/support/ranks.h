// Runs a function as every rank of a world of threads.
#pragma once

#include "comm/threads/thread_world.h"

#include <exception>
#include <functional>
#include <thread>

namespace tutti {

inline void run_ranks(int ranks, const std::function<void(comm::World&)>& function, Seconds timeout = Seconds{60}) {
    const auto worlds = comm::threads::make_thread_worlds(ranks, timeout);
    std::vector<std::thread> threads;
    std::exception_ptr first;
    std::mutex mutex;
    for (const auto& world : worlds)
        threads.emplace_back([&] {
            try {
                function(*world);
            } catch (const std::exception& error) {
                {
                    const std::lock_guard lock(mutex);
                    if (!first) first = std::current_exception();
                }
                world->fail(error.what(), 70);
            }
        });
    for (auto& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

} // namespace tutti

// Ranks that are threads of the test.
#pragma once

#include "base/error.h"
#include "comm/threads/thread_world.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

// Runs `body` on as many ranks and tells what each threw: "WorldError: sentence", or "" where it returned. As in a real
// run, a rank that ends in failure ends the others.
inline std::vector<std::string> run_ranks(int ranks, const std::function<void(comm::Group&)>& body) {
    const auto worlds = comm::threads::make_thread_worlds(ranks, Seconds{60});
    std::vector<std::string> ends(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                body(worlds[rank]->all());
            } catch (const Error& error) {
                ends[rank] = std::string("Error: ") + error.what();
            } catch (const WorldError& error) {
                ends[rank] = std::string("WorldError: ") + error.what();
            } catch (const std::exception& error) {
                ends[rank] = std::string("another: ") + error.what();
            }
            if (!ends[rank].empty()) worlds[rank]->fail(ends[rank], 75);
        });
    for (std::thread& thread : threads) thread.join();
    return ends;
}

} // namespace tutti::test

// A program with ranks, for tests of how they start and end: rank_program WHAT RANKS COMM TIMEOUT [RANK].
#include "launch/ranks.h"

#include "base/error.h"
#include "comm/mpi_world.h"
#include "launch/failure.h"
#include "launch/stop_signals.h"
#include "run/layout.h"
#include "terminal/terminal.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

namespace tutti::test {

using namespace comm;
using namespace launch;
using namespace run;
using namespace terminal;
namespace {

using namespace std::chrono_literals;

float sum_over_ranks(World& world, float value) {
    world.all().wait(
        world.all().all_reduce(std::as_writable_bytes(std::span(&value, 1)), DType::float32, Combine::sum));
    return value;
}

int listening_sockets() { // of this process
    int count = 0;
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
        int listens = 0;
        socklen_t size = sizeof listens;
        if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) ++count;
    }
    return count;
}

// What a rank does; `chosen` is the one that behaves differently.
void behave(const std::string& what, World& world, int chosen) {
    const bool is_chosen = world.rank() == chosen;
    if (what == "count") {
        const float ranks = sum_over_ranks(world, 1), sum = sum_over_ranks(world, static_cast<float>(world.rank()));
        if (world.rank() == 0) print(fmt::format("{} ranks, sum {}\n", ranks, sum));
    } else if (what == "places") { // rank r is the process 2, 0, 1
        const auto launch = find_launch();
        const int process = launch ? launch->rank : (world.rank() + 2) % 3;
        const float wrong = sum_over_ranks(world, process == (world.rank() + 2) % 3 ? 0 : 1);
        if (world.rank() == 0) print(fmt::format("{} wrong\n", wrong));
    } else if (what == "error-everywhere") {
        fail("nobody likes this");
    } else if (what == "error" && is_chosen) {
        fail("rank {} does not like this", chosen);
    } else if (what == "late-error") { // the others are done long before
        if (is_chosen) std::this_thread::sleep_for(500ms);
        if (is_chosen) fail("rank {} does not like this", chosen);
    } else if (what == "bug" && is_chosen) {
        throw Bug("two is not three");
    } else if (what == "mismatch") {
        std::vector<std::byte> data(world.rank() == 0 ? 800 : 400);
        world.all().wait(world.rank() == 0 ? world.all().send(data, 1) : world.all().receive(data, 0));
    } else if (what == "kill" && is_chosen) {
        ::raise(SIGKILL);
    } else if (what == "freeze" && is_chosen) {
        ::raise(SIGSTOP);
    } else if (what == "absent" && is_chosen) {
        print("absent\n");
        std::this_thread::sleep_for(60s);
    } else if (what == "until-stopped") {
        while (sum_over_ranks(world, stop_requested() ? 1 : 0) == 0) {
            if (world.rank() == 0) print(".\n");
            std::this_thread::sleep_for(10ms);
        }
        if (world.rank() == 0) print("stopped\n");
    } else if (what == "listen") {
        const float listening = sum_over_ranks(world, static_cast<float>(listening_sockets()));
        if (world.rank() == 0) print(fmt::format("{} listen\n", listening));
    } else if (what == "compute" && world.rank() == 0) {
        std::this_thread::sleep_for(3s); // while another fails
    } else if (what == "compute" && is_chosen) {
        fail("rank {} does not like this", chosen);
    } else if (what == "terminal") {
        if (world.rank() == 0) print(fmt::format("{} {}\n", output_is_terminal(), terminal_columns()));
    } else {
        while (true) sum_over_ranks(world, 1);
    }
}

int run(int count, char** words) {
    if (count < 5) fail("rank_program WHAT RANKS COMM TIMEOUT [RANK]");
    RunConfig config;
    config.ranks = std::atoi(words[2]);
    config.comm = parse_connection(words[3]).value();
    config.timeout = std::atof(words[4]);
    config = with_layout(config, started_ranks());
    const std::string what = words[1];
    if (what == "places") config.places = {2, 0, 1};
    if (what == "early-error") fail("nobody even starts");
    const int chosen = count > 5 ? std::atoi(words[5]) : 0;
    const auto launch = find_launch();
    if (what == "early-kill" && launch && launch->rank == chosen) ::raise(SIGKILL);
    if (what == "early-absence" && launch && launch->rank == chosen) {
        print("absent\n");
        std::this_thread::sleep_for(60s);
    }
    std::atomic<int> stop_status = 0;
    const int status = run_ranks(config, [&](World& world) {
        behave(what, world, chosen);
        if (what == "until-stopped") stop_status = status_of_stop(world);
    });
    return status != 0 ? status : stop_status.load();
}

} // namespace
} // namespace tutti::test

int main(int count, char** words) {
    return tutti::launch::run_and_report([&] { return tutti::test::run(count, words); });
}

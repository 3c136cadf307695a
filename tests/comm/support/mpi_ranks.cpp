// One rank of a test, started by mpirun: what the ranks do is the first argument.
#include "base/error.h"
#include "comm/mpi_world.h"
#include "comm/support/exercises.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

using namespace tutti;

namespace {

std::vector<float> values(1 << 20, 1.0f);
std::span<std::byte> data() { return std::as_writable_bytes(std::span(values)); }

void reduce(tutti::comm::World& world) {
    world.all().wait(world.all().all_reduce(data(), tutti::DType::float32, tutti::Combine::sum));
}

// The victim stops, dies or stays away when the others are in the middle of it.
void lose_a_rank(tutti::comm::World& world, const std::string& how, int victim) {
    for (int i = 0; i < 3; ++i) reduce(world);
    if (world.rank() != victim) {
        while (true) reduce(world);
    }
    const tutti::comm::Ticket ticket = world.all().all_reduce(data(), tutti::DType::float32, tutti::Combine::sum);
    if (how == "kill") ::raise(SIGKILL);
    if (how == "stop") {
        std::fprintf(stderr, "process %d stops\n", ::getpid());
        ::raise(SIGSTOP);
    }
    if (how == "fail") tutti::fail("rank {} does not like it", victim);
    world.all().wait(ticket);
    while (how == "late" && !world.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reduce(world);
}

void run(tutti::comm::World& world, const std::string& task, int victim) {
    if (task == "exercise") {
        tutti::exercise_operations(world);
        tutti::exercise_messages(world);
        tutti::exercise_many_at_once(world, 5, 300);
    } else if (task == "large") { // more than an int can count
        std::vector<std::byte> large((std::size_t{1} << 31) + 12345,
                                     std::byte{static_cast<unsigned char>(world.rank())});
        world.all().wait(world.all().broadcast(large, 1));
        if (large.front() != std::byte{1} || large.back() != std::byte{1}) tutti::fail("2 GiB did not arrive");
    } else if (task == "vanish") { // where the others have done their work and take their leave
        reduce(world);
        if (world.rank() == victim) ::raise(SIGKILL);
    } else if (task != "nothing") {
        lose_a_rank(world, task, victim);
    }
}

} // namespace

// mpi_ranks TASK [TIMEOUT [VICTIM]]
int main(int count, char** arguments) {
    std::signal(SIGTERM, SIG_IGN); // mpirun sends it to all when one has died; they end by themselves
    const std::string task = count > 1 ? arguments[1] : "exercise";
    const double timeout = count > 2 ? std::atof(arguments[2]) : 60;
    const int victim = count > 3 ? std::atoi(arguments[3]) : 1;
    std::unique_ptr<tutti::comm::World> world;
    int rank = -1, status = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto tell = [&](int with_status, const std::string& sentence) {
        const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::fprintf(stderr, "rank %d: status %d after %.1f s: %s\n", rank, with_status, took, sentence.c_str());
        status = with_status;
    };
    try {
        world = tutti::comm::open_mpi_world(tutti::Seconds{timeout});
        rank = world->rank();
        const auto launch = tutti::comm::find_launch();
        if (launch.value_or(tutti::comm::ProcessLaunch{}).ranks != world->size())
            tutti::fail("mpirun started other than {} ranks", world->size());
        run(*world, task, victim);
        tell(0, "done");
    } catch (const tutti::WorldError& error) {
        if (world) world->fail(error.what(), 75);
        tell(75, error.what());
    } catch (const std::exception& error) {
        if (world) world->fail(error.what(), 2);
        tell(2, error.what());
    }
    if (status != 0) ::_exit(status);
    world.reset();
    return status;
}

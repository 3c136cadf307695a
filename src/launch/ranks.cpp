#include "launch/ranks.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "comm/mpi_world.h"
#include "comm/threads/thread_world.h"
#include "cores/topology.h"
#include "launch/failure.h"
#include "launch/mpirun.h"
#include "launch/rank_process.h"
#include "launch/stop_signals.h"
#include "run/layout.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti::launch {
namespace {

// What a rank hears of another's defect is one here, too: trying again does not help.
std::exception_ptr as_the_world_knows_it(const std::exception_ptr& thrown, comm::World& world) {
    const auto failure = world.failure();
    const bool is_heard = failure && failure->status == status_bug && failure->sentence == failure_of(thrown).sentence;
    return is_heard ? std::make_exception_ptr(Bug(failure->sentence)) : thrown;
}

// Ranks as threads: what the first that fails throws, the others fail because of it.
class RankThreads {
  public:
    explicit RankThreads(const RankBody& body) : body_(body) {}

    void run(const run::RunConfig& config) {
        std::vector<std::unique_ptr<comm::World>> worlds;
        try {
            worlds = comm::threads::make_thread_worlds(config.ranks, {config.timeout});
            threads_.reserve(worlds.size());
            for (std::unique_ptr<comm::World>& world : worlds) {
                threads_.emplace_back([this, kept = world.get()] { run_rank(std::unique_ptr<comm::World>(kept)); });
                static_cast<void>(world.release()); // it is the thread's now
                const std::lock_guard lock(mutex_);
                ++started_;
            }
        } catch (const std::system_error& error) {
            const std::string sentence = fmt::format("{} ranks cannot be started as threads of one process: {}",
                                                     config.ranks, error.code().message());
            for (const std::unique_ptr<comm::World>& world : worlds)
                if (world) world->fail(sentence, status_world);
            fail_with(std::make_exception_ptr(WorldError(sentence)));
        }
        wait();
        for (std::thread& thread : threads_) thread.join();
        if (first_) std::rethrow_exception(first_);
    }

  private:
    void run_rank(std::unique_ptr<comm::World> world) {
        try {
            body_(*world);
            end_together(*world);
        } catch (...) {
            fail_with(as_the_world_knows_it(std::current_exception(), *world));
            const comm::Failure failure = failure_of(std::current_exception());
            world->fail(failure.sentence, failure.status);
        }
        world.reset();
        const std::lock_guard lock(mutex_);
        ++ended_;
        changed_.notify_all();
    }
    void fail_with(const std::exception_ptr& thrown) {
        const std::lock_guard lock(mutex_);
        if (!first_) first_ = thrown;
        changed_.notify_all();
    }
    // For all; after a failure not for long: a rank that never comes back cannot be ended, but the process can.
    void wait() {
        std::unique_lock lock(mutex_);
        auto are_done = [&] { return ended_ == started_; };
        changed_.wait(lock, [&] { return are_done() || first_; });
        if (!changed_.wait_for(lock, time_to_follow, are_done)) end_process(failure_of(first_), true);
    }

    static constexpr auto time_to_follow = std::chrono::seconds(5);
    const RankBody& body_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int started_ = 0, ended_ = 0;
    std::exception_ptr first_;
};

// Told before they start and the machine comes to a halt.
void check_room_here(int ranks) {
    constexpr Bytes least{std::int64_t{24} << 20}; // of a rank with its libraries, beside all that it computes
    constexpr int most_per_core = 64;              // beyond that they hardly find each other
    const std::int64_t by_memory = machine_memory().count / least.count,
                       by_cores = most_per_core * cores::usable_cores();
    if (ranks > std::min(by_memory, by_cores))
        fail("{} ranks are too many for one machine with {} and {} of memory: at most {} start here, or give their "
             "machines to mpirun yourself, as in mpirun --hostfile FILE tutti train ...",
             ranks, counted(cores::usable_cores(), "core"), to_string(machine_memory()), std::min(by_memory, by_cores));
}

} // namespace

int started_ranks() {
    const auto launch = comm::find_launch();
    return launch ? launch->ranks : 0;
}

int run_and_report(const std::function<int()>& action) {
    const auto launch = comm::find_launch();
    const bool speaks = !launch || launch->rank == 0;
    try {
        const int status = action();
        if (speaks) report_to_launcher(status);
        return speaks || status == 0 ? status : let_others_tell({{}, status});
    } catch (...) {
        const comm::Failure failure = failure_of(std::current_exception());
        return speaks ? tell(failure) : let_others_tell(failure);
    }
}

void check_room(const run::RunConfig& config) {
    const bool are_threads = config.comm == run::Connection::threads;
    if (config.ranks <= 1 || (comm::find_launch() && !are_threads)) return;
    if (are_threads || !has_lent_machines()) check_room_here(config.ranks);
    if (!are_threads) check_mpirun(config.ranks);
}

int status_of_stop(comm::World& world) {
    const std::vector<int> signals = comm::gather_values(world.all(), stop_signal());
    const int signal = std::ranges::max(signals);
    return signal == 0 ? 0 : status_of_signal + signal;
}

int run_ranks(const run::RunConfig& config, const RankBody& body) {
    check_room(config);
    const auto launch = comm::find_launch();
    if (config.ranks > 1 && config.comm != run::Connection::threads)
        return launch ? run_as_process(config, *launch, body) : run_mpirun(config);
    catch_stop_signals();
    if (config.ranks == 1)
        body(*comm::make_single_world());
    else
        RankThreads(body).run(config);
    return 0;
}

int threads_of_rank(const run::RunConfig& config, int rank) {
    const auto launch = comm::find_launch();
    if (!launch || config.comm == run::Connection::threads)
        return run::threads_of(config, rank, cores::usable_cores(), config.ranks);
    // Ranks share the cores of what started them, unless each was given some of its own.
    const int threads = run::threads_of(config, rank, cores::cores_of(::getppid()), launch->local_ranks);
    return config.threads > 0 || !config.rank_threads.empty() ? threads : std::min(cores::usable_cores(), threads);
}

} // namespace tutti::launch

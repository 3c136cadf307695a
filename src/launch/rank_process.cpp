#include "launch/rank_process.h"

#include "base/error.h"
#include "launch/failure.h"
#include "launch/mpirun.h"
#include "launch/started_together.h"
#include "launch/stop_signals.h"
#include "terminal/terminal.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto time_to_close = std::chrono::seconds(10);

// Looks at something ten times a second beside what the rank does, until it is told to end or has seen enough.
class Lookout {
  public:
    explicit Lookout(std::function<bool()> has_seen_enough) : look_(std::move(has_seen_enough)) {
        thread_ = std::thread([this] {
            std::unique_lock lock(mutex_);
            while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return stops_; }) && !look_()) {
            }
        });
    }
    Lookout(const Lookout&) = delete;
    Lookout& operator=(const Lookout&) = delete;
    ~Lookout() {
        {
            const std::lock_guard lock(mutex_);
            stops_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

  private:
    std::function<bool()> look_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stops_ = false;
    std::thread thread_;
};

[[noreturn]] void end_unmet(const std::string& sentence) {
    end_process({"the ranks did not find each other" + sentence, status_world}, true);
}

// MPI itself waits for ranks that never come. The first rank that is there speaks, and its end is that of the others.
std::unique_ptr<comm::World> open_in_time(const run::RunConfig& config, const comm::ProcessLaunch& launch) {
    const double limit = time_to_find_others(config), turn = limit + launch.rank;
    const auto begin = Clock::now();
    StartedTogether ranks(launch.local_ranks, terminal::launcher_columns().has_value(), begin);
    const auto patience = std::chrono::milliseconds(2000 + 200 * launch.local_rank); // mpirun may see it, too
    const Lookout lookout([&] {
        const auto now = Clock::now();
        if (std::chrono::duration<double>(now - begin).count() > turn)
            end_unmet(fmt::format(" within {}: rank {} waited for others, of which one was killed, stopped, or could "
                                  "not start",
                                  to_string(Seconds{limit}), launch.rank));
        const auto siblings = count_siblings();
        const auto lost = siblings ? ranks.lost_since(*siblings, now) : std::nullopt;
        if (lost && now - *lost > patience) end_unmet(": one of those on this machine was killed, or could not start");
        return false;
    });
    return comm::open_mpi_world({config.timeout}, config.places);
}

// All is done and every rank knows it; but MPI waits for all at its end, too, and one that is lost now must not hold
// the others up.
void close_in_time(std::unique_ptr<comm::World> world) {
    std::promise<void> closed;
    std::future<void> is_closed = closed.get_future();
    std::thread closing([kept = std::move(world), told = std::move(closed)]() mutable {
        kept.reset();
        told.set_value();
    });
    if (is_closed.wait_for(time_to_close) == std::future_status::ready)
        closing.join();
    else
        closing.detach();
}

} // namespace

void end_together(comm::World& world) {
    std::array<std::byte, sizeof(float)> nothing{};
    world.all().wait(world.all().all_reduce(nothing, DType::float32, Combine::sum));
}

int run_as_process(const run::RunConfig& config, const comm::ProcessLaunch& launch, const RankBody& body) {
    follow_launcher();
    catch_passed_on_request();
    std::unique_ptr<comm::World> world = open_in_time(config, launch);
    if (world->size() != config.ranks)
        fail("{} processes were started together, but MPI knows of {}: was it the mpirun of another MPI?", config.ranks,
             world->size());
    catch_stop_signals(); // not before: what waits for lost ranks in MPI has to end at once
    if (world->rank() == 0) report_meeting_to_launcher();
    std::atomic<bool> is_told = false;
    std::optional<Lookout> lookout;
    // Rank 0 may compute for long while mpirun, seeing another rank end, is about to kill it.
    if (world->rank() == 0)
        lookout.emplace([&] {
            const auto failure = world->failure();
            if (!failure || failure->teller <= 0) return false; // what rank 0 found out itself is told below
            tell(*failure);
            return is_told = true;
        });
    comm::Failure failure;
    try {
        body(*world);
        end_together(*world);
        lookout.reset();
        close_in_time(std::move(world));
        return 0;
    } catch (...) {
        failure = failure_of(std::current_exception());
    }
    lookout.reset();
    const auto before = world->failure();
    const bool comes_from_world = before && before->sentence == failure.sentence;
    if (!comes_from_world) world->fail(failure.sentence, failure.status);
    failure = world->failure().value_or(failure);
    // Where rank 0 is lost, the rank that found out speaks.
    const bool tells = world->rank() == 0 || (comes_from_world && failure.teller == world->rank());
    world.reset(); // the others know now
    end_process(failure, tells && !is_told);
}

} // namespace tutti::launch

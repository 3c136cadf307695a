// Heartbeat: which of the ranks that this one waits for are alive. An engine answers a request for a sign of life
// whatever its rank is doing; a rank whose engine does not answer was killed or stopped. Time in which the asking
// engine itself could not run, because it was stopped or its machine was busy, does not count against the others.
#pragma once

#include "base/units.h"
#include "comm/transport.h"

#include <optional>
#include <vector>

namespace tutti::comm {

class Heartbeat {
  public:
    // limit: the silence after which a rank is taken to be lost.
    Heartbeat(int ranks, Seconds limit);

    // Notes that time has passed. False if it is too early to look again.
    bool go_on(Clock::time_point now);
    Clock::time_point next_look() const { return last_ + beat_; }
    // How long an operation may take before anybody is asked.
    Clock::duration time_to_wait() const { return 5 * beat_; }

    // Whether to ask the rank for a sign of life now: nothing was heard of it for a while, nor is it being asked.
    bool should_ask(int rank);
    void heard(int rank);
    bool is_silent(int rank) const { return silence(rank) >= 5 * beat_; }
    bool is_lost(int rank) const { return silence(rank) >= 30 * beat_; }

  private:
    Clock::duration silence(int rank) const { return asked_[rank] ? lived_ - *asked_[rank] : Clock::duration{}; }

    Clock::duration beat_;    // between looks; the limit has 30 of them
    Clock::duration lived_{}; // by this engine, so far: the clock of all that follows
    Clock::time_point last_;
    std::vector<std::optional<Clock::duration>> asked_, heard_;
};

// Whom a member of a group asks while an operation of the group does not end: those at distance 1, 2, 4 and so on, so
// that each is asked by few, and neighbours that are lost together are still asked by others.
std::vector<int> members_to_ask(int rank, int size);

} // namespace tutti::comm

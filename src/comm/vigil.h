// Vigil: which of the ranks that this one waits for are alive. An engine answers questions whatever its rank computes
// and waits for; one that does not was killed or stopped. Time in which the asking engine itself did not get to run, be
// it stopped or on a busy machine, does not count against those it asked.
#pragma once

#include "base/units.h"
#include "comm/transport.h"

#include <optional>
#include <vector>

namespace tutti::comm {

class Vigil {
  public:
    // limit: the silence after which a rank is taken to be lost.
    Vigil(int ranks, Seconds limit);

    // Time has passed. False where it is too early to look again.
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

// Inquiry: finds the ranks to blame when an operation is late. Every rank tells every other where it stands; a rank
// that says nothing for two seconds was killed or stopped. The lowest rank that answers decides the sentence with which
// all end; if it dies on the way, each rank ends with its own sentence. The inquiry depends neither on any single rank
// nor on the stuck operation.
#pragma once

#include "comm/control.h"

namespace tutti::comm {

constexpr auto time_to_answer = std::chrono::seconds(2);
constexpr auto time_to_speak = std::chrono::milliseconds(800); // for the one whose turn it is, after that

// The complaint about an operation that waits for a rank without a sign of life.
constexpr const char* held_up = "is held up";

class Inquiry {
  public:
    Inquiry(int rank, int ranks) : rank_(rank), standings_(ranks), left_(ranks, false) {}

    void leave(int rank) { left_[rank] = true; } // it is done with its work
    bool has_left(int rank) const { return left_[rank]; }

    bool under_way() const { return standings_[rank_].has_value(); }
    void begin(Standing mine, Clock::time_point now);
    // Whether the rank may still have something to say: it has not left, nor failed to answer.
    bool is_expected(int rank) const { return !left_[rank] && (!under_way() || standings_[rank]); }
    void answer(int rank, Standing standing) { standings_[rank] = std::move(standing); }

    // When to look again; and what this rank has to say to all, if it is its turn.
    Clock::time_point next_look(Clock::time_point now) const;
    std::optional<std::string> sentence(Clock::time_point now) const;

  private:
    bool complete() const;

    int rank_;
    std::vector<std::optional<Standing>> standings_;
    std::vector<bool> left_;
    Clock::time_point begun_;
};

// The sentence: the late operation and the ranks that hold it up. A rank that is itself waiting for others is not to
// blame: they are. standings: empty where a rank did not answer; left: ranks that had finished.
std::string find_fault(const std::vector<std::optional<Standing>>& standings, const std::vector<bool>& left);

} // namespace tutti::comm

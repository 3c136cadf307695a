#include "simulate/rank_simulation.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti::simulate {
namespace {

using Kind = OutlineAction::Kind;

// One communication, seen by all of its ranks.
struct Meeting {
    int expected = 0, arrived = 0;
    double begin = 0, seconds = 0;

    bool is_complete() const { return arrived == expected; }
    double end() const { return begin + seconds; }
};

// Collectives of a group, or messages between two ranks one way, are the same for all by their order.
struct Way {
    int channel = 0;
    std::vector<int> ranks{}; // of a message: from, to
    bool message = false;
    auto operator<=>(const Way&) const = default;
};

class RankSimulation {
  public:
    explicit RankSimulation(std::span<const Outline> outlines) : outlines_(outlines), ranks_(outlines.size()) {
        for (std::size_t r = 0; r < outlines.size(); ++r) {
            const Outline& outline = outlines[r];
            ranks_[r].meetings.assign(outline.communications.size(), nullptr);
            ranks_[r].simulated.tasks.resize(outline.tasks.size());
            ranks_[r].simulated.communications.resize(outline.communications.size());
        }
    }

    std::vector<SimulatedRank> run() {
        for (bool any = true; any;) {
            any = false;
            for (std::size_t r = 0; r < ranks_.size(); ++r)
                while (step(r)) any = true;
        }
        std::vector<SimulatedRank> result;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            if (ranks_[r].task < outlines_[r].tasks.size())
                fail("the programs are a deadlock: rank {} waits for ever in task {}", r, ranks_[r].task);
            finish(r);
            result.push_back(std::move(ranks_[r].simulated));
        }
        return result;
    }

  private:
    struct Rank {
        double now = 0;
        std::size_t task = 0, awaited = 0, action = 0; // the next of each
        std::map<Way, std::size_t> begun{};
        std::vector<Meeting*> meetings{};
        SimulatedRank simulated{};
    };

    // The next thing a rank does; false where it cannot go on, or is done.
    bool step(std::size_t r) {
        Rank& rank = ranks_[r];
        const Outline& outline = outlines_[r];
        if (rank.task == outline.tasks.size()) return false;
        const OutlineTask& task = outline.tasks[rank.task];
        if (rank.awaited < task.awaited.size()) {
            if (!wait(rank, task.awaited[rank.awaited])) return false;
            ++rank.awaited;
            return true;
        }
        if (rank.action == 0) rank.simulated.tasks[rank.task].start = rank.now;
        if (rank.action < task.actions.size()) {
            if (!act(r, task.actions[rank.action])) return false;
            ++rank.action;
            return true;
        }
        rank.simulated.tasks[rank.task].end = rank.now;
        ++rank.task;
        rank.awaited = rank.action = 0;
        return true;
    }

    bool act(std::size_t r, const OutlineAction& action) {
        Rank& rank = ranks_[r];
        if (action.kind == Kind::compute) rank.now += action.seconds;
        if (action.kind == Kind::start) start(r, action.communication);
        return action.kind != Kind::wait || wait(rank, action.communication);
    }

    void start(std::size_t r, std::int32_t number) {
        Rank& rank = ranks_[r];
        const OutlineCommunication& communication = outlines_[r].communications[static_cast<std::size_t>(number)];
        const GroupSpec& group = outlines_[r].groups[static_cast<std::size_t>(communication.group)];
        Way way{.channel = group.channel, .ranks = group.members};
        if (communication.peer >= 0) {
            way.message = true;
            way.ranks = {static_cast<int>(r), communication.peer};
            if (!communication.sends) std::swap(way.ranks[0], way.ranks[1]);
        }
        const std::size_t turn = rank.begun[way]++;
        Meeting& meeting = meetings_[{way, turn}];
        meeting.expected = static_cast<int>(way.ranks.size());
        ++meeting.arrived;
        meeting.begin = std::max(meeting.begin, rank.now);
        meeting.seconds = std::max(meeting.seconds, communication.seconds);
        // Collectives of a group share the way: as if one went after the other.
        if (meeting.is_complete() && !way.message && turn > 0)
            meeting.begin = std::max(meeting.begin, meetings_.at({way, turn - 1}).end());
        rank.meetings[static_cast<std::size_t>(number)] = &meeting;
        rank.simulated.communications[static_cast<std::size_t>(number)].start = rank.now;
    }

    bool wait(Rank& rank, std::int32_t communication) {
        const Meeting& meeting = *rank.meetings[static_cast<std::size_t>(communication)];
        if (!meeting.is_complete()) return false;
        if (meeting.end() > rank.now) {
            const bool in_step = rank.task < rank.simulated.tasks.size();
            rank.simulated.waits.push_back(
                {in_step ? static_cast<std::int32_t>(rank.task) : -1, communication, rank.now, meeting.end()});
            rank.now = meeting.end();
        }
        return true;
    }

    // What nobody waited for ends with the step.
    void finish(std::size_t r) {
        Rank& rank = ranks_[r];
        for (std::size_t i = 0; i < rank.meetings.size(); ++i) {
            if (!wait(rank, static_cast<std::int32_t>(i)))
                fail("the programs do not fit together: no rank takes part in communication {} ({}) of rank {}", i,
                     outlines_[r].communications[i].name, r);
            rank.simulated.communications[i].end = rank.meetings[i]->end();
        }
        rank.simulated.time = rank.now;
    }

    std::span<const Outline> outlines_;
    std::vector<Rank> ranks_;
    std::map<std::pair<Way, std::size_t>, Meeting> meetings_;
};

} // namespace

std::vector<SimulatedRank> simulate(std::span<const Outline> outlines) { return RankSimulation(outlines).run(); }

} // namespace tutti::simulate

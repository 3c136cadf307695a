#include "simulate/simulate.h"

#include "base/error.h"
#include "schedule/lower.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tutti::simulate {
namespace {

Lane lane_of(const Segment& segment) {
    return segment.instructions.empty() ? Lane::compute : segment.instructions.front().lane;
}

// A rank on its way through its program. What is on the compute lane runs one after the other. Messages on the
// communication lane pass each other; synchronisation there does not.
struct Walker {
    std::size_t next = 0;
    double compute = 0, communication = 0; // when the lane is free
    std::map<int, std::size_t> received;   // messages taken from each peer
};

struct Sent {
    const Task* task;
    double end;
};

class ProgramSimulation {
  public:
    explicit ProgramSimulation(std::span<const Program> programs) : programs_(programs), ranks_(programs.size()) {
        for (const Program& program : programs_) {
            result_.ranks.emplace_back(program.step.size());
            for (const Task& task : program.step)
                if (task.kind == TaskKind::reduce) ++participants_[task.stage];
        }
    }

    Simulation run() {
        for (bool any = true; any;) {
            any = false;
            for (std::size_t r = 0; r < ranks_.size(); ++r)
                while (ranks_[r].next < programs_[r].step.size() && step(r)) any = true;
        }
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            if (ranks_[r].next == programs_[r].step.size()) continue;
            const Task& task = programs_[r].step[ranks_[r].next];
            fail("the programs are a deadlock: rank {} waits for ever to {} (stage {}, micro-batch {})", r,
                 name_of(task.kind), task.stage, task.micro_batch);
        }
        while (!awaited_.empty()) { // messages that no task waited for
            const auto [r, number] = awaited_.begin()->first;
            if (!has_arrived(r, number))
                fail("rank {} waits for ever for a message of rank {}", r, programs_[r].step[number].peer);
        }
        for (const auto& rank : result_.ranks)
            for (const SimulatedTask& task : rank) result_.time = std::max(result_.time, task.end);
        return std::move(result_);
    }

  private:
    // When all that the rank's next task waits for is done; nothing while a message it needs has not been sent.
    std::optional<double> ready(std::size_t r) {
        double time = 0;
        for (const std::int32_t wait : programs_[r].step[ranks_[r].next].waits) {
            TUTTI_CHECK(wait >= 0 && static_cast<std::size_t>(wait) < ranks_[r].next, "rank {}: task {} waits for {}",
                        r, ranks_[r].next, wait);
            if (!has_arrived(r, static_cast<std::size_t>(wait))) return std::nullopt;
            time = std::max(time, result_.ranks[r][static_cast<std::size_t>(wait)].end);
        }
        return time;
    }

    bool step(std::size_t r) {
        const Task& task = programs_[r].step[ranks_[r].next];
        const std::optional<double> begin = ready(r);
        if (!begin) return false;
        if (task.kind == TaskKind::receive) return receive(r, task, *begin);
        if (task.kind == TaskKind::reduce) return reduce(r, task);
        const bool has_segment = task.segment >= 0;
        const Segment none{};
        const Segment& segment = has_segment ? programs_[r].segments.at(static_cast<std::size_t>(task.segment)) : none;
        Walker& rank = ranks_[r];
        const bool computes = has_segment && lane_of(segment) == Lane::compute;
        const double start = computes ? std::max(rank.compute, *begin) : *begin;
        const double end = start + segment.cost;
        if (computes) rank.compute = end;
        if (task.kind == TaskKind::send) sent_[{static_cast<int>(r), task.peer}].push_back({&task, end});
        return finish(r, start, end);
    }

    // It waits for the peer's next message beside what the rank goes on with.
    bool receive(std::size_t r, const Task& task, double begin) {
        awaited_[{r, ranks_[r].next}] = ranks_[r].received[task.peer]++;
        return finish(r, begin, begin);
    }

    // Of a receive: whether its message has been sent, which must be the one meant. Of all else it is so.
    bool has_arrived(std::size_t r, std::size_t number) {
        const auto awaited = awaited_.find({r, number});
        if (awaited == awaited_.end()) return true;
        const Task& task = programs_[r].step[number];
        const std::vector<Sent>& messages = sent_[{task.peer, static_cast<int>(r)}];
        if (awaited->second >= messages.size()) return false;
        const Sent& message = messages[awaited->second];
        if (message.task->stage != task.stage || message.task->micro_batch != task.micro_batch)
            fail("rank {} receives stage {}, micro-batch {} where rank {} sends stage {}, micro-batch {}", r,
                 task.stage, task.micro_batch, task.peer, message.task->stage, message.task->micro_batch);
        result_.ranks[r][number].end = std::max(result_.ranks[r][number].start, message.end);
        awaited_.erase(awaited);
        return true;
    }

    // Begins when every rank that owns the stage has come to it; all of them end at once.
    bool reduce(std::size_t r, const Task& task) {
        auto& arrived = arrived_[task.stage];
        if (std::find(arrived.begin(), arrived.end(), r) == arrived.end()) arrived.push_back(r);
        if (static_cast<int>(arrived.size()) < participants_[task.stage]) return false;
        auto lane = [&](std::size_t rank) -> double& {
            const Task& its = programs_[rank].step[ranks_[rank].next];
            const Segment& segment = programs_[rank].segments.at(static_cast<std::size_t>(its.segment));
            return lane_of(segment) == Lane::compute ? ranks_[rank].compute : ranks_[rank].communication;
        };
        double start = 0;
        for (const std::size_t other : arrived) start = std::max({start, lane(other), ready(other).value_or(0)});
        const double end = start + programs_[r].segments.at(static_cast<std::size_t>(task.segment)).cost;
        for (const std::size_t other : arrived) {
            lane(other) = end;
            finish(other, start, end);
        }
        return true;
    }

    bool finish(std::size_t r, double start, double end) {
        result_.ranks[r][ranks_[r].next++] = {start, end};
        return true;
    }

    std::span<const Program> programs_;
    std::vector<Walker> ranks_;
    std::map<std::pair<int, int>, std::vector<Sent>> sent_;              // by sender and receiver
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> awaited_; // receives by rank and task: which message
    std::map<int, int> participants_;                                    // ranks that synchronise a stage
    std::map<int, std::vector<std::size_t>> arrived_;
    Simulation result_;
};

} // namespace

Simulation simulate(std::span<const Program> programs) { return ProgramSimulation(programs).run(); }

Simulation simulate(const Plan& plan) {
    if (!plan.schedule) fail("the plan has no schedule to simulate; one with a \"schedule\" section has");
    return simulate(schedule::lower(plan.schedule->schedule, plan.schedule->costs));
}

} // namespace tutti::simulate

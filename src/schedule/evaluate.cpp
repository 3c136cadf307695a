#include "schedule/evaluate.h"

#include "base/error.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

// Tasks of one rank in a row, in the sorted list. With one, 32 ranks write to 64 places of memory in turn, which a
// cache of 8 ways does not hold where ranks have 512 tasks each; with many, each waits for the one before.
constexpr int turn = 4;
constexpr int costs_per_stage = 10; // Work × recomputes or not

std::uint16_t cost_index(const ScheduledTask& task) {
    return static_cast<std::uint16_t>(task.stage * costs_per_stage + static_cast<int>(task.work) * 2 +
                                      (task.recomputes ? 1 : 0));
}

bool finishes_gradient(Work work) { return work == Work::weight_gradient || work == Work::full_backward; }

// Before a rank's first backward it warms up, after its last forward it cools down.
std::vector<std::uint16_t> phases_of(std::span<const ScheduledTask> tasks) {
    std::vector<std::uint16_t> phases(tasks.size(), 0);
    bool backwards = false;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        phases[i] = backwards ? 1 : 0;
        backwards = backwards || is_backward(tasks[i].work);
    }
    for (std::size_t i = tasks.size(); i-- > 0 && tasks[i].work != Work::forward;)
        if (phases[i] == 1) phases[i] = 2;
    if (!phases.empty()) phases[0] = 3;
    return phases;
}

} // namespace

double duration_of(const StageCosts& stage, Work work, bool recomputes) {
    const double before = recomputes ? stage.recompute : 0;
    switch (work) {
    case Work::forward: return stage.forward;
    case Work::recompute: return stage.recompute;
    case Work::backward: return before + stage.backward;
    case Work::weight_gradient: return stage.weight_gradient;
    case Work::full_backward: return before + stage.backward + stage.weight_gradient;
    }
    return 0;
}

double acquired_by(const StageCosts& stage, Work work, bool recomputes) {
    if (work == Work::forward) return recomputes ? stage.boundary : stage.activation;
    return work == Work::recompute || (is_backward(work) && recomputes) ? stage.activation - stage.boundary : 0;
}

double released_by(const StageCosts& stage, Work work) {
    switch (work) {
    case Work::backward: return stage.activation - stage.kept_after_backward;
    case Work::weight_gradient: return stage.kept_after_backward;
    case Work::full_backward: return stage.activation;
    default: return 0;
    }
}

double Evaluation::peak_activations() const {
    double peak = 0;
    for (const RankEvaluation& rank : ranks) peak = std::max(peak, rank.peak_activations);
    return peak;
}

double Evaluation::window_idle() const {
    double most = 0;
    for (const RankEvaluation& rank : ranks) most = std::max(most, rank.window_idle);
    return most;
}

Evaluator::Evaluator(const Schedule& schedule) : parameters_(schedule.parameters), first_(schedule.first) {
    const auto stages = static_cast<std::size_t>(parameters_.stages());
    const auto model_replicas = static_cast<std::size_t>(parameters_.model_replicas);
    if (stages * costs_per_stage > 65536) fail("a schedule of {} stages; at most {} work", stages, 6553);
    if (model_replicas * (stages - 1) > 65535)
        fail("{} model replicas of {} stages; at most {} replicas work", model_replicas, stages, 65535 / (stages - 1));
    for (const ScheduledTask& task : schedule.tasks) cost_of_task_.push_back(cost_index(task));
    sort(schedule);
    order_synchronisation(schedule);
    durations_.resize(stages * costs_per_stage);
    acquires_.resize(stages * costs_per_stage);
    releases_.resize(stages * costs_per_stage);
    edges_.resize(model_replicas * (stages - 1) + 1);
    lanes_.resize(static_cast<std::size_t>(schedule.ranks()));
    clocks_.resize(static_cast<std::size_t>(schedule.ranks()));
}

// Takes a few tasks of every rank in turn, as far as their messages are there, so that the processor finds independent
// ones side by side.
void Evaluator::sort(const Schedule& schedule) {
    const auto count = static_cast<std::int32_t>(schedule.tasks.size());
    const auto no_edge = static_cast<std::uint16_t>(parameters_.model_replicas * (parameters_.stages() - 1));
    std::vector<Step> steps(schedule.tasks.size());
    for (int r = 0; r < schedule.ranks(); ++r) {
        const auto phases = phases_of(schedule.rank(r));
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i)
            steps[i] = {i,
                        count,
                        no_edge,
                        cost_of_task_[i],
                        static_cast<std::uint16_t>(r),
                        phases[static_cast<std::size_t>(i - schedule.first[r])]};
    }
    sends_.assign(schedule.tasks.size(), no_edge);
    for (const Message& message : messages(schedule)) {
        const auto edge = static_cast<std::uint16_t>(message.replica * (parameters_.stages() - 1) + message.boundary);
        sends_[message.sender] = edge;
        steps[message.receiver].sender = message.sender;
        steps[message.receiver].edge = edge;
    }
    std::vector<char> done(schedule.tasks.size() + 1, 0);
    done.back() = 1;
    std::vector<std::int32_t> next(schedule.first.begin(), schedule.first.end() - 1);
    steps_.reserve(steps.size());
    while (steps_.size() < steps.size()) {
        const std::size_t before = steps_.size();
        for (int r = 0; r < schedule.ranks(); ++r) {
            std::int32_t& at = next[r];
            for (int taken = 0; taken < turn && at < schedule.first[r + 1] && done[steps[at].sender]; ++taken) {
                done[at] = 1;
                steps_.push_back(steps[at++]);
            }
        }
        if (steps_.size() > before) continue;
        for (int r = 0; r < schedule.ranks(); ++r)
            if (next[r] != schedule.first[r + 1])
                fail("the order is a deadlock: rank {} waits at {} for {}, which never runs", r,
                     to_string(schedule.tasks[next[r]]), to_string(schedule.tasks[steps[next[r]].sender]));
    }
}

// All ranks synchronise stages in one order, that in which the last gradients appear in the sorted list; so ranks that
// share several stages (model replicas) cannot wait for each other in a circle.
void Evaluator::order_synchronisation(const Schedule& schedule) {
    const int stages = parameters_.stages();
    last_gradient_.assign(static_cast<std::size_t>(stages) * static_cast<std::size_t>(parameters_.model_replicas), -1);
    std::vector<std::size_t> position(static_cast<std::size_t>(stages), 0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const ScheduledTask& task = schedule.tasks[steps_[i].task];
        if (!finishes_gradient(task.work)) continue;
        last_gradient_[task.stage * parameters_.model_replicas + task.replica] = steps_[i].task;
        position[task.stage] = i;
    }
    synchronised_.resize(static_cast<std::size_t>(stages));
    for (int s = 0; s < stages; ++s) synchronised_[s] = s;
    std::sort(synchronised_.begin(), synchronised_.end(),
              [&](std::int32_t a, std::int32_t b) { return std::pair(position[a], a) < std::pair(position[b], b); });
}

void Evaluator::read(const Costs& costs) {
    for (std::size_t s = 0; s < costs.stages.size(); ++s) {
        for (int c = 0; c < costs_per_stage; ++c) {
            const auto work = static_cast<Work>(c / 2);
            const std::size_t at = s * costs_per_stage + static_cast<std::size_t>(c);
            durations_[at] = duration_of(costs.stages[s], work, c % 2 == 1);
            acquires_[at] = acquired_by(costs.stages[s], work, c % 2 == 1);
            releases_[at] = released_by(costs.stages[s], work);
        }
    }
    const int boundaries = parameters_.stages() - 1;
    for (int replica = 0; replica < parameters_.model_replicas; ++replica)
        for (int b = 0; b < boundaries; ++b) edges_[replica * boundaries + b] = costs.edge(replica, b);
    edges_.back() = 0;
}

template <bool blocking>
void Evaluator::run(Evaluation& into) {
    std::fill(clocks_.begin(), clocks_.end(), Clock{});
    double* const start = into.start.data();
    double* const end = into.end.data();
    Clock* const clocks = clocks_.data();
    const double* const edges = edges_.data();
    const double* const durations = durations_.data();
    for (const Step& step : steps_) {
        Clock& clock = clocks[step.rank];
        const double edge = edges[step.edge];
        const double begin = std::max(clock.free, end[step.sender] + edge);
        const double gap = begin - clock.free;
        const double on_its_way = std::min(gap, edge);
        const double duration = durations[step.cost];
        clock.communicating[step.phase] += on_its_way;
        clock.waiting[step.phase] += gap - on_its_way;
        clock.busy += duration;
        start[step.task] = begin;
        end[step.task] = begin + duration;
        clock.free = begin + duration;
        if constexpr (blocking) {
            const double sending = edges[sends_[step.task]];
            clock.free += sending;
            clock.communicating[0] += sending;
        }
    }
}

void Evaluator::replay_memory(Evaluation& into) const {
    for (std::size_t r = 0; r + 1 < first_.size(); ++r) {
        double held = 0, peak = 0;
        for (std::int32_t i = first_[r]; i < first_[r + 1]; ++i) {
            held += acquires_[cost_of_task_[i]];
            peak = std::max(peak, held);
            held -= releases_[cost_of_task_[i]];
        }
        into.ranks[r].peak_activations = peak;
    }
}

// After the tasks: synchronisation, on a lane of its own beside the computing unless it blocks; then the update.
void Evaluator::finish(const Costs& costs, Evaluation& into) {
    const int model_replicas = parameters_.model_replicas;
    std::fill(lanes_.begin(), lanes_.end(), 0.0);
    for (RankEvaluation& rank : into.ranks) rank = {};
    for (std::size_t r = 0; r < into.ranks.size(); ++r) {
        RankEvaluation& rank = into.ranks[r];
        const Clock& clock = clocks_[r];
        const bool any = first_[r] < first_[r + 1];
        rank.first_start = any ? into.start[first_[r]] : 0;
        rank.last_end = any ? into.end[first_[r + 1] - 1] : 0;
        rank.finish = clock.free;
        rank.busy = clock.busy;
        rank.idle = {clock.waiting[3] + clock.waiting[0], clock.waiting[1], clock.waiting[2],
                     clock.communicating[0] + clock.communicating[1] + clock.communicating[2] + clock.communicating[3]};
        // A blocking send after the last task lies outside the window.
        const double inside = clock.communicating[0] + clock.communicating[1] + clock.communicating[2];
        rank.window_idle =
            clock.waiting[0] + clock.waiting[1] + clock.waiting[2] + inside - (clock.free - rank.last_end);
    }
    for (const std::int32_t stage : synchronised_) {
        double begin = 0;
        for (int replica = 0; replica < model_replicas; ++replica) {
            const int holder = rank_of(parameters_, replica, stage);
            const std::int32_t last = last_gradient_[stage * model_replicas + replica];
            const double ready = costs.blocking ? into.ranks[holder].finish : last < 0 ? 0 : into.end[last];
            begin = std::max({begin, ready, lanes_[holder]});
        }
        for (int replica = 0; replica < model_replicas; ++replica)
            lanes_[rank_of(parameters_, replica, stage)] = begin + costs.stages[stage].synchronise;
    }
    for (std::size_t r = 0; r < into.ranks.size(); ++r) {
        const double ready = std::max(into.ranks[r].finish, lanes_[r]);
        into.ranks[r].idle.communication += ready - into.ranks[r].finish;
        into.ranks[r].finish = ready;
    }
    double busy = 0;
    into.time = 0;
    for (const std::int32_t stage : synchronised_) {
        for (int replica = 0; replica < model_replicas; ++replica) {
            RankEvaluation& rank = into.ranks[rank_of(parameters_, replica, stage)];
            rank.finish += costs.stages[stage].update;
            rank.busy += costs.stages[stage].update;
        }
    }
    for (const RankEvaluation& rank : into.ranks) {
        into.time = std::max(into.time, rank.finish);
        busy += rank.busy;
    }
    for (RankEvaluation& rank : into.ranks) rank.idle.cool_down += into.time - rank.finish;
    into.bubble = into.time > 0 ? 1 - busy / (static_cast<double>(into.ranks.size()) * into.time) : 0;
}

void Evaluator::evaluate(const Costs& costs, Evaluation& into) {
    into.start.resize(steps_.size());
    into.end.resize(steps_.size() + 1); // one more, at 0: where tasks that wait for no message look
    into.end.back() = 0;
    into.ranks.resize(lanes_.size());
    read(costs);
    costs.blocking ? run<true>(into) : run<false>(into);
    into.end.pop_back();
    finish(costs, into);
    replay_memory(into);
}

Evaluation evaluate(const Schedule& schedule, const Costs& costs) {
    check(costs, schedule.parameters);
    Evaluation result;
    Evaluator(schedule).evaluate(costs, result);
    return result;
}

} // namespace tutti::schedule

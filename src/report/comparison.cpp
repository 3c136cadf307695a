#include "report/comparison.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace tutti::report {
namespace {

constexpr double milliseconds = 1e3;

bool is_message(TaskKind kind) { return kind == TaskKind::send || kind == TaskKind::receive; }

// Kinds whose tasks compute; in the others a rank only hands something over, or waits.
bool computes(TaskKind kind) {
    return !is_message(kind) && kind != TaskKind::load && kind != TaskKind::reduce && kind != TaskKind::gather;
}

std::optional<BoxKind> box_of(TaskKind kind) {
    switch (kind) {
    case TaskKind::forward: return BoxKind::forward;
    case TaskKind::recompute: return BoxKind::recompute;
    case TaskKind::backward: return BoxKind::backward;
    case TaskKind::weight_gradient: return BoxKind::weight_gradient;
    case TaskKind::clear:
    case TaskKind::norm:
    case TaskKind::update: return BoxKind::update;
    default: return std::nullopt;
    }
}

// Per task, what of it was spent waiting.
std::vector<double> waiting_in_tasks(const RankTrace& rank) {
    std::vector<double> waiting(rank.tasks.size(), 0);
    for (const TracedWait& wait : rank.waits) {
        if (wait.task < 0) continue;
        const TracedTask& task = rank.tasks[static_cast<std::size_t>(wait.task)];
        waiting[static_cast<std::size_t>(wait.task)] +=
            std::max(0.0, std::min(wait.end, task.end) - std::max(wait.start, task.start));
    }
    return waiting;
}

double busy_of(const RankTrace& rank) {
    const std::vector<double> waiting = waiting_in_tasks(rank);
    double busy = 0;
    for (std::size_t i = 0; i < rank.tasks.size(); ++i)
        if (computes(rank.tasks[i].kind)) busy += std::max(0.0, rank.tasks[i].duration() - waiting[i]);
    return busy;
}

// One row of the picture. What lies between the boxes is waiting: before the first backward, after the last forward, or
// between; after the last box of the pipeline the ranks reduce gradients.
TimelineRow row_of(const RankTrace& rank, double origin, double time, const std::map<std::int32_t, int>& turns) {
    TimelineRow row;
    std::size_t last_forward = 0, last_of_pipeline = 0;
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
        if (rank.tasks[i].kind == TaskKind::forward) last_forward = i;
        if (const auto box = box_of(rank.tasks[i].kind); box && *box != BoxKind::update) last_of_pipeline = i;
    }
    double now = 0;
    bool warming_up = true;
    auto wait_until = [&](double start, IdleCause cause) {
        if (start > now) row.idle.push_back({now, start, cause});
        now = std::max(now, start);
    };
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
        const TracedTask& task = rank.tasks[i];
        const auto kind = box_of(task.kind);
        if (!kind) continue;
        wait_until((task.start - origin) * milliseconds, i > last_of_pipeline ? IdleCause::communication
                                                         : warming_up         ? IdleCause::warm_up
                                                         : i > last_forward   ? IdleCause::cool_down
                                                                              : IdleCause::steady);
        const double end = std::max(now, (task.end - origin) * milliseconds);
        const auto turn = turns.find(task.stage);
        row.boxes.push_back({.kind = *kind,
                             .start = now,
                             .end = end,
                             .stage = task.stage,
                             .replica = task.replica,
                             .micro_batch = task.micro_batch,
                             .turn = *kind == BoxKind::update || turn == turns.end() ? 0 : turn->second});
        now = end;
        warming_up = warming_up && task.kind != TaskKind::backward;
    }
    wait_until(time, IdleCause::cool_down);
    row.busy = busy_of(rank) * milliseconds;
    row.held = {{0, 0}, {time, 0}};
    return row;
}

// Which of the rank's stages a stage is.
std::map<std::int32_t, int> turns_of(const RankTrace& rank) {
    std::map<std::int32_t, int> turns;
    for (const TracedTask& task : rank.tasks)
        if (box_of(task.kind) && box_of(task.kind) != BoxKind::update) turns.emplace(task.stage, 0);
    int next = 0;
    for (auto& [stage, turn] : turns) turn = next++;
    return turns;
}

Timeline timeline_of(const std::vector<RankTrace>& ranks, double origin, double time) {
    Timeline timeline;
    timeline.time = time * milliseconds;
    std::set<std::int32_t> model_replicas;
    double busy = 0;
    for (const RankTrace& rank : ranks) {
        const auto turns = turns_of(rank);
        timeline.turns = std::max(timeline.turns, static_cast<int>(turns.size()));
        for (const TracedTask& task : rank.tasks) model_replicas.insert(task.replica);
        timeline.rows.push_back(row_of(rank, origin, timeline.time, turns));
        busy += timeline.rows.back().busy;
    }
    // Where weight gradients are no tasks of their own, a backward is the whole one.
    if (!timeline.has(BoxKind::weight_gradient))
        for (TimelineRow& row : timeline.rows)
            for (Box& box : row.boxes)
                if (box.kind == BoxKind::backward) box.kind = BoxKind::full_backward;
    timeline.model_replicas = std::max(1, static_cast<int>(model_replicas.size()));
    timeline.bubble = time > 0 ? 1 - busy / (static_cast<double>(ranks.size()) * timeline.time) : 0;
    return timeline;
}

// Of a rank, the time that each kind took.
std::map<TaskKind, std::pair<int, double>> kinds_of(const RankTrace& rank) {
    std::map<TaskKind, std::pair<int, double>> kinds;
    for (const TracedTask& task : rank.tasks) {
        auto& [count, time] = kinds[task.kind];
        ++count;
        if (!is_message(task.kind)) time += task.duration();
    }
    for (const TracedCommunication& communication : rank.communications) {
        if (communication.task < 0) continue;
        const TaskKind kind = rank.tasks[static_cast<std::size_t>(communication.task)].kind;
        if (is_message(kind)) kinds[kind].second += communication.end - communication.start;
    }
    return kinds;
}

double waiting_of(const RankTrace& rank) {
    double all = 0;
    for (const TracedWait& wait : rank.waits) all += wait.end - wait.start;
    return all;
}

const TracedStep& median_step(const RunTrace& trace) {
    std::vector<const TracedStep*> steps;
    for (const TracedStep& step : trace.steps) steps.push_back(&step);
    std::ranges::sort(steps, {}, [](const TracedStep* step) { return step->duration(); });
    return *steps[(steps.size() - 1) / 2];
}

} // namespace

double Compared::share() const {
    if (simulated != 0) return difference() / simulated;
    return measured == 0 ? 0 : std::copysign(INFINITY, measured);
}

std::string short_name(TaskKind kind) {
    const auto box = box_of(kind);
    return std::string(box && *box != BoxKind::update ? name_of(*box) : name_of(kind));
}

Comparison compare(const RunTrace& trace) {
    TUTTI_CHECK(!trace.steps.empty(), "no step was traced");
    const TracedStep& step = median_step(trace);
    const double origin = step.start();
    const double simulated_time = std::ranges::max_element(trace.simulated, {}, &RankTrace::end)->end;
    Comparison result;
    result.step = step.step;
    result.time = {step.duration(), simulated_time};
    for (int r = 0; r < trace.ranks(); ++r) {
        const RankTrace &measured = step.ranks[static_cast<std::size_t>(r)],
                        &simulated = trace.simulated[static_cast<std::size_t>(r)];
        for (std::size_t i = 0; i < measured.tasks.size(); ++i) {
            const TracedTask &task = measured.tasks[i], &other = simulated.tasks[i];
            result.tasks.push_back({r, task, {task.start - origin, other.start}, {task.duration(), other.duration()}});
        }
        auto predicted = kinds_of(simulated);
        for (const auto& [kind, sum] : kinds_of(measured))
            result.kinds.push_back({r, kind, sum.first, {sum.second, predicted[kind].second}});
        result.waiting.push_back({waiting_of(measured), waiting_of(simulated)});
    }
    result.measured = timeline_of(step.ranks, origin, step.duration());
    result.measured.title = "measured";
    result.measured.facts = {{"step", std::to_string(step.step)}, {"unit", "ms"}};
    result.simulated = timeline_of(trace.simulated, 0, simulated_time);
    result.simulated.title = "simulated";
    result.simulated.facts = {{"unit", "ms"}};
    result.bubble = {result.measured.bubble, result.simulated.bubble};
    return result;
}

} // namespace tutti::report

#include "schedule/slow_reference.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

namespace tutti {

using namespace schedule;
namespace {

std::string name(Work work, int stage, int micro_batch) {
    return fmt::format("{} {} {}", name_of(work), stage, micro_batch);
}

// Every task that has to be over before, whatever rank it is on.
std::vector<std::string> needs(const Schedule& schedule, const ScheduledTask& task, const std::set<std::string>& all) {
    const int s = task.stage, m = task.micro_batch;
    const bool last = s + 1 == schedule.parameters.stages();
    std::vector<std::string> list;
    auto need = [&](Work work, int stage) {
        if (all.contains(name(work, stage, m))) list.push_back(name(work, stage, m));
    };
    switch (task.work) {
    case Work::forward:
        if (s > 0) need(Work::forward, s - 1);
        break;
    case Work::recompute: need(Work::forward, s); break;
    case Work::backward:
    case Work::full_backward:
        need(Work::forward, s);
        need(Work::recompute, s);
        if (!last) need(Work::backward, s + 1);
        if (!last) need(Work::full_backward, s + 1);
        break;
    case Work::weight_gradient: need(Work::backward, s); break;
    }
    return list;
}

double cost(const StageCosts& stage, const ScheduledTask& task) {
    const double again = task.recomputes ? stage.recompute : 0;
    if (task.work == Work::forward) return stage.forward;
    if (task.work == Work::recompute) return stage.recompute;
    if (task.work == Work::weight_gradient) return stage.weight_gradient;
    return again + stage.backward + (task.work == Work::full_backward ? stage.weight_gradient : 0);
}

// Levels rather than differences: what each (stage, micro-batch) holds after its latest task, summed anew every time.
double peak_of(std::span<const ScheduledTask> tasks, const Costs& costs) {
    std::map<std::pair<int, int>, double> held;
    double peak = 0;
    auto sum = [&] {
        double total = 0;
        for (const auto& [who, amount] : held) total += amount;
        return total;
    };
    for (const ScheduledTask& task : tasks) {
        const StageCosts& stage = costs.stages[task.stage];
        double& mine = held[{task.stage, task.micro_batch}];
        if (task.work != Work::weight_gradient)
            mine = task.work == Work::forward && task.recomputes ? stage.boundary : stage.activation;
        peak = std::max(peak, sum());
        if (task.work == Work::backward) mine = stage.kept_after_backward;
        if (task.work == Work::weight_gradient || task.work == Work::full_backward) mine = 0;
    }
    return peak;
}

} // namespace

SlowResult evaluate_slowly(const Schedule& schedule, const Costs& costs) {
    const ScheduleParameters& p = schedule.parameters;
    SlowResult result{std::vector<double>(schedule.tasks.size()), std::vector<double>(schedule.tasks.size()), {}};
    std::set<std::string> all;
    for (const ScheduledTask& task : schedule.tasks) all.insert(name(task.work, task.stage, task.micro_batch));
    std::map<std::string, std::vector<double>> there; // when a task's result is on each rank
    std::set<double> events{0.0};
    std::vector<std::int32_t> next(schedule.first.begin(), schedule.first.end() - 1);
    std::vector<double> free(static_cast<std::size_t>(p.ranks), 0.0);
    std::size_t done = 0;
    auto can_start = [&](int r, const ScheduledTask& task, double now) {
        for (const std::string& need : needs(schedule, task, all)) {
            const auto at = there.find(need);
            if (at == there.end() || at->second[r] > now) return false;
        }
        return true;
    };
    while (!events.empty()) {
        const double now = *events.begin();
        for (bool any = true; any;) { // tasks may take no time
            any = false;
            for (int r = 0; r < p.ranks; ++r) {
                if (next[r] == schedule.first[r + 1] || free[r] > now) continue;
                const ScheduledTask& task = schedule.tasks[next[r]];
                if (!can_start(r, task, now)) continue;
                const double end = now + cost(costs.stages[task.stage], task);
                const bool gradient = task.work == Work::backward || task.work == Work::full_backward;
                const int to = gradient ? task.stage - 1 : task.work == Work::forward ? task.stage + 1 : -1;
                std::vector<double>& arrives = there[name(task.work, task.stage, task.micro_batch)];
                arrives.assign(static_cast<std::size_t>(p.ranks), end);
                free[r] = end;
                if (to >= 0 && to < p.stages() && rank_of(p, task.replica, to) != r) {
                    const double message = costs.edge(task.replica, std::min<int>(to, task.stage));
                    arrives[rank_of(p, task.replica, to)] = end + message;
                    events.insert(end + message);
                    if (costs.blocking) free[r] = end + message;
                }
                events.insert(end);
                events.insert(free[r]);
                result.start[next[r]] = now;
                result.end[next[r]] = end;
                ++next[r];
                ++done;
                any = true;
            }
        }
        events.erase(events.begin());
    }
    for (int r = 0; r < p.ranks; ++r) result.peaks.push_back(peak_of(schedule.rank(r), costs));
    result.finished = done == schedule.tasks.size();
    return result;
}

} // namespace tutti

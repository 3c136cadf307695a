#include "report/timeline.h"

#include "base/counted.h"
#include "base/error.h"
#include "schedule/families.h"

#include <algorithm>
#include <cmath>

namespace tutti::report {
namespace {

// Shorter than this is rounding, not waiting.
double smallest(double time) { return time * 1e-12; }

// The step of one rank as it is laid out from left to right.
class RowBuilder {
  public:
    RowBuilder(TimelineRow& row, double smallest_gap) : row_(row), smallest_(smallest_gap) {}

    double now() const { return now_; }
    void wait_until(double time, IdleCause cause) {
        if (time - now_ > smallest_) {
            if (!row_.idle.empty() && row_.idle.back().end == now_ && row_.idle.back().cause == cause)
                row_.idle.back().end = time;
            else
                row_.idle.push_back({now_, time, cause});
        }
        now_ = std::max(now_, time);
    }
    void compute(const Box& box) {
        row_.boxes.push_back(box);
        now_ = box.end;
    }
    void hold(double time, double change) {
        if (change == 0) return;
        const double before = row_.held.empty() ? 0 : row_.held.back().activations;
        if (row_.held.empty() && time > 0) row_.held.push_back({0, 0});
        const double after = before + change;
        if (!row_.held.empty() && row_.held.back().time == time)
            row_.held.back().activations = std::abs(after) < 1e-9 ? 0 : after;
        else
            row_.held.push_back({time, std::abs(after) < 1e-9 ? 0 : after});
        row_.peak = std::max(row_.peak, row_.held.back().activations);
    }

  private:
    TimelineRow& row_;
    double smallest_;
    double now_ = 0;
};

Box box_of(const schedule::ScheduledTask& task, const schedule::ScheduleParameters& parameters,
           const schedule::StageCosts& stage, double start, double end) {
    return {static_cast<BoxKind>(task.work),
            start,
            end,
            schedule::is_backward(task.work) && task.recomputes ? stage.recompute : 0,
            task.stage,
            task.replica,
            task.micro_batch,
            task.stage / parameters.ranks};
}

// Of a rank's whole share, where all stages cost the same: "f 1 b 1 w 1 comm 0.1".
std::string costs_text(const schedule::ScheduleParameters& p, const schedule::Costs& costs) {
    const schedule::StageCosts& stage = costs.stages.front();
    for (const schedule::StageCosts& other : costs.stages)
        if (other != stage) return "differ by stage";
    const double stages = p.stages_per_rank;
    std::string text = "f " + plain_number(stage.forward * stages);
    text += " b " + plain_number((stage.backward + (p.split_backward ? 0 : stage.weight_gradient)) * stages);
    if (p.split_backward) text += " w " + plain_number(stage.weight_gradient * stages);
    if (stage.recompute > 0) text += " r " + plain_number(stage.recompute * stages);
    const auto [least, most] = std::ranges::minmax_element(costs.communication);
    if (*most > 0) text += " comm " + plain_number(*least) + (*least < *most ? " to " + plain_number(*most) : "");
    return text + (*most > 0 && costs.blocking ? " blocking" : "");
}

std::vector<std::pair<std::string, std::string>> facts_of(const schedule::Schedule& schedule,
                                                          const schedule::Costs& costs) {
    const schedule::ScheduleParameters& p = schedule.parameters;
    std::vector<std::pair<std::string, std::string>> facts = {{"ranks", std::to_string(p.ranks)},
                                                              {"micro-batches", std::to_string(p.micro_batches)}};
    if (p.stages_per_rank > 1) facts.emplace_back("stages per rank", std::to_string(p.stages_per_rank));
    if (p.model_replicas > 1) facts.emplace_back("model replicas", std::to_string(p.model_replicas));
    if (p.placement != schedule::StagePlacement::loop)
        facts.emplace_back("placement", std::string(schedule::name_of(p.placement)));
    const bool may_be_limited = schedule::find_family(p.family).free.in_flight;
    if (may_be_limited && p.in_flight > 0 && p.in_flight < p.micro_batches / p.model_replicas)
        facts.emplace_back("in flight", std::to_string(p.in_flight));
    if (p.memory_cap > 0) facts.emplace_back("memory cap", plain_number(p.memory_cap));
    facts.emplace_back("costs", costs_text(p, costs));
    return facts;
}

} // namespace

Timeline make_timeline(const schedule::Schedule& schedule, const schedule::Costs& costs,
                       const schedule::Evaluation& evaluation) {
    TUTTI_CHECK(evaluation.start.size() == schedule.tasks.size() &&
                    evaluation.ranks.size() == static_cast<std::size_t>(schedule.ranks()),
                "{} tasks, {} starts", schedule.tasks.size(), evaluation.start.size());
    const schedule::ScheduleParameters& p = schedule.parameters;
    Timeline timeline;
    timeline.title = p.family;
    timeline.facts = facts_of(schedule, costs);
    timeline.time = evaluation.time;
    timeline.bubble = evaluation.bubble;
    timeline.peak = evaluation.peak_activations();
    timeline.turns = p.stages_per_rank;
    timeline.model_replicas = p.model_replicas;
    timeline.rows.resize(static_cast<std::size_t>(schedule.ranks()));

    // When the message that a task waits for was sent, and how long the one that it sends keeps it, if it does.
    std::vector<double> sent(schedule.tasks.size(), -1), sending(schedule.tasks.size(), 0);
    for (const schedule::Message& message : schedule::messages(schedule)) {
        sent[message.receiver] = evaluation.end[message.sender];
        if (costs.blocking) sending[message.sender] = costs.edge(message.replica, message.boundary);
    }
    for (int r = 0; r < schedule.ranks(); ++r) {
        TimelineRow& row = timeline.rows[r];
        RowBuilder builder(row, smallest(evaluation.time));
        const auto tasks = schedule.rank(r);
        auto is_forward = [](const schedule::ScheduledTask& task) { return task.work == schedule::Work::forward; };
        const auto last_forward = std::find_if(tasks.rbegin(), tasks.rend(), is_forward).base() - tasks.begin();
        bool warming_up = true;
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) {
            const schedule::ScheduledTask& task = schedule.tasks[i];
            const schedule::StageCosts& stage = costs.stages[task.stage];
            const IdleCause phase = warming_up                              ? IdleCause::warm_up
                                    : i - schedule.first[r] >= last_forward ? IdleCause::cool_down
                                                                            : IdleCause::steady;
            // First the message is not sent yet, then it is on its way.
            if (sent[i] >= 0) {
                builder.wait_until(std::min(evaluation.start[i], sent[i]), phase);
                builder.wait_until(evaluation.start[i], IdleCause::communication);
            }
            builder.wait_until(evaluation.start[i], phase);
            builder.compute(box_of(task, p, stage, evaluation.start[i], evaluation.end[i]));
            builder.wait_until(builder.now() + sending[i], IdleCause::communication);
            builder.hold(evaluation.start[i], schedule::acquired_by(stage, task.work, task.recomputes));
            builder.hold(evaluation.end[i], -schedule::released_by(stage, task.work));
            warming_up = warming_up && !schedule::is_backward(task.work);
        }
        double update = 0;
        for (int replica = 0; replica < p.model_replicas; ++replica)
            for (int s = 0; s < p.stages(); ++s)
                if (schedule::rank_of(p, replica, s) == r) update += costs.stages[s].update;
        const schedule::RankEvaluation& rank = evaluation.ranks[r];
        builder.wait_until(rank.finish - update, IdleCause::communication);
        if (update > 0) builder.compute({BoxKind::update, rank.finish - update, rank.finish});
        builder.wait_until(evaluation.time, IdleCause::cool_down);
        if (row.held.empty()) row.held.push_back({0, 0});
        row.held.push_back({evaluation.time, row.held.back().activations});
        row.busy = rank.busy;
        row.window_idle = rank.window_idle;
    }
    return timeline;
}

bool Timeline::has(BoxKind kind) const {
    return std::ranges::any_of(rows, [&](const TimelineRow& row) {
        return std::ranges::find(row.boxes, kind, &Box::kind) != row.boxes.end();
    });
}

bool Timeline::has(IdleCause cause) const {
    return std::ranges::any_of(rows, [&](const TimelineRow& row) {
        return std::ranges::find(row.idle, cause, &Idle::cause) != row.idle.end();
    });
}

bool Timeline::recomputes() const {
    return has(BoxKind::recompute) || std::ranges::any_of(rows, [](const TimelineRow& row) {
               return std::ranges::any_of(row.boxes, [](const Box& box) { return box.recomputing > 0; });
           });
}

std::string_view name_of(BoxKind kind) {
    static constexpr std::array<std::string_view, box_kinds> names = {"F", "R", "B", "W", "BW", "U"};
    return names[static_cast<std::size_t>(kind)];
}

std::string_view description_of(BoxKind kind) {
    static constexpr std::array<std::string_view, box_kinds> names = {"forward",         "recompute", "input gradient",
                                                                      "weight gradient", "backward",  "update"};
    return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(IdleCause cause) {
    static constexpr std::array<std::string_view, idle_causes> names = {"warm-up", "steady", "cool-down",
                                                                        "communication"};
    return names[static_cast<std::size_t>(cause)];
}

std::string plain_number(double number) { return fmt::format("{:.5g}", std::abs(number) < 1e-9 ? 0.0 : number); }

} // namespace tutti::report

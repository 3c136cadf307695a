#include "schedule/lower.h"

#include "base/error.h"
#include "program/slots.h"
#include "schedule/evaluate.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti::schedule {
namespace {

TaskKind kind_of(Work work) {
    switch (work) {
    case Work::forward: return TaskKind::forward;
    case Work::recompute: return TaskKind::recompute;
    case Work::weight_gradient: return TaskKind::weight_gradient;
    case Work::backward:
    case Work::full_backward: break;
    }
    return TaskKind::backward;
}

InstructionKind kind_of(TaskKind task) {
    return task == TaskKind::send      ? InstructionKind::send
           : task == TaskKind::receive ? InstructionKind::receive
                                       : InstructionKind::kernel;
}

// One rank's Program under construction. Segments are shared by all tasks that do the same.
class RankProgram {
  public:
    RankProgram(const ScheduleParameters& parameters, const Costs& costs) : p_(parameters), costs_(costs) {
        program_.trains = true;
        program_.micro_batches = p_.micro_batches;
    }

    // `held`: the stage among those of this rank.
    std::int32_t add(TaskKind kind, int stage, int replica, int micro_batch, Lane lane, double cost,
                     std::vector<std::int32_t> waits, int peer = -1, std::int32_t held = 0) {
        const auto key = std::tuple(kind, stage, lane, cost);
        auto [at, is_new] = segments_.try_emplace(key, static_cast<std::int32_t>(program_.segments.size()));
        if (is_new) {
            Segment segment{.kind = kind, .stage = stage, .cost = cost};
            segment.instructions.push_back({.op = std::string(name_of(kind)), .kind = kind_of(kind), .lane = lane});
            program_.segments.push_back(std::move(segment));
        }
        program_.step.push_back({.kind = kind,
                                 .stage = stage,
                                 .replica = replica,
                                 .micro_batch = micro_batch,
                                 .segment = at->second,
                                 .local = held,
                                 .peer = peer,
                                 .waits = std::move(waits)});
        return static_cast<std::int32_t>(program_.step.size()) - 1;
    }

    void compute(const ScheduledTask& task, std::vector<std::int32_t> waits) {
        const double cost = duration_of(costs_.stages[task.stage], task.work, task.recomputes);
        const std::int32_t at = add(kind_of(task.work), task.stage, task.replica, task.micro_batch, Lane::compute, cost,
                                    std::move(waits), -1, local(task.stage, task.replica));
        if (task.work == Work::weight_gradient || task.work == Work::full_backward)
            last_gradient_[{task.stage, task.replica}] = at;
    }

    void send(const Message& message, const ScheduledTask& task) {
        const auto produced = static_cast<std::int32_t>(program_.step.size()) - 1;
        const bool here = message.from == message.to;
        const std::int32_t at =
            add(TaskKind::send, task.stage, task.replica, task.micro_batch, here ? Lane::communication : lane(),
                here ? 0 : costs_.edge(message.replica, message.boundary), {produced}, message.to,
                local(task.stage, task.replica));
        program_.step[at].gradient = is_backward(task.work);
    }

    // Named by the stage that sends; it takes a slot of the stage that it is for.
    std::int32_t receive(const Message& message, const ScheduledTask& sent) {
        const std::int32_t at = add(TaskKind::receive, sent.stage, sent.replica, sent.micro_batch, Lane::communication,
                                    0, {}, message.from);
        Task& task = program_.step[at];
        task.gradient = is_backward(sent.work);
        task.local = local(task.gradient ? sent.stage - 1 : sent.stage + 1, sent.replica);
        return at;
    }

    void finish(const std::vector<std::int32_t>& synchronisation_order) {
        std::vector<std::int32_t> reduced;
        for (const int stage : synchronisation_order) {
            std::vector<std::int32_t> waits = gradients(stage);
            const double cost = costs_.stages[stage].synchronise;
            if (!waits.empty() && (cost > 0 || p_.model_replicas > 1))
                reduced.push_back(add(TaskKind::reduce, stage, 0, 0, lane(), cost, std::move(waits)));
        }
        for (const int stage : synchronisation_order)
            for (int replica = 0; replica < p_.model_replicas; ++replica)
                if (costs_.stages[stage].update > 0 && last_gradient_.contains({stage, replica}))
                    add(TaskKind::update, stage, replica, 0, Lane::compute, costs_.stages[stage].update, reduced);
    }

    Program take() {
        assign_slots(program_);
        return std::move(program_);
    }

  private:
    Lane lane() const { return costs_.blocking ? Lane::compute : Lane::communication; }

    std::vector<std::int32_t> gradients(int stage) const {
        std::vector<std::int32_t> list;
        for (int replica = 0; replica < p_.model_replicas; ++replica)
            if (const auto at = last_gradient_.find({stage, replica}); at != last_gradient_.end())
                list.push_back(at->second);
        return list;
    }

    std::int32_t local(int stage, int replica) {
        auto& stages = program_.stages;
        auto at = std::ranges::find_if(
            stages, [&](const LocalStage& one) { return one.stage == stage && one.replica == replica; });
        if (at == stages.end()) at = stages.insert(at, {.stage = stage, .replica = replica});
        return static_cast<std::int32_t>(at - stages.begin());
    }

    const ScheduleParameters& p_;
    const Costs& costs_;
    Program program_{};
    std::map<std::tuple<TaskKind, int, Lane, double>, std::int32_t> segments_;
    std::map<std::pair<int, int>, std::int32_t> last_gradient_;
};

} // namespace

std::vector<Program> lower(const Schedule& schedule, const Costs& costs) {
    check(costs, schedule.parameters);
    const Evaluator evaluator(schedule); // throws at a deadlock; knows the order of synchronisation
    const std::vector<Message> list = handovers(schedule);
    std::vector<std::int32_t> outgoing(schedule.tasks.size(), -1), incoming(schedule.tasks.size(), -1);
    std::map<std::pair<int, int>, std::vector<std::int32_t>> channels; // messages in the order of their sends
    for (std::size_t i = 0; i < list.size(); ++i) {
        outgoing[list[i].sender] = static_cast<std::int32_t>(i);
        incoming[list[i].receiver] = static_cast<std::int32_t>(i);
        channels[{list[i].from, list[i].to}].push_back(static_cast<std::int32_t>(i));
    }
    std::map<std::pair<int, int>, std::size_t> posted;
    std::vector<std::int32_t> received(list.size(), -1); // the receive task of a message
    std::vector<Program> programs;
    for (int r = 0; r < schedule.ranks(); ++r) {
        RankProgram rank(schedule.parameters, costs);
        // In the order of the peer's sends: those before it are received as well, if they have not been.
        auto receive = [&](std::int32_t i) {
            const std::int32_t in = incoming[i];
            if (in < 0 || list[in].from == list[in].to) return;
            const std::pair channel(list[in].from, list[in].to);
            for (std::size_t& next = posted[channel]; received[in] < 0; ++next) {
                const std::int32_t message = channels[channel][next];
                received[message] = rank.receive(list[message], schedule.tasks[list[message].sender]);
            }
        };
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) {
            receive(i);
            if (i + 1 < schedule.first[r + 1]) receive(i + 1); // it may arrive while this task computes
            std::vector<std::int32_t> waits;
            if (incoming[i] >= 0) waits.push_back(received[incoming[i]]);
            rank.compute(schedule.tasks[i], std::move(waits));
            const std::int32_t out = outgoing[i];
            if (out < 0) continue;
            rank.send(list[out], schedule.tasks[i]);
            if (list[out].from == list[out].to) received[out] = rank.receive(list[out], schedule.tasks[i]); // at once
        }
        rank.finish(evaluator.synchronisation_order());
        programs.push_back(rank.take());
    }
    return programs;
}

} // namespace tutti::schedule

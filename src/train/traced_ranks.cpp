#include "train/traced_ranks.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tutti::train {
namespace {

using Json = nlohmann::json;

std::string description(const std::string& operation, const GroupSpec& group, int peer) {
    if (peer < 0) return fmt::format("{} in {}", operation, group.name);
    return fmt::format("{} {} rank {}", operation, operation == name_of(InstructionKind::send) ? "to" : "from",
                       group.members[static_cast<std::size_t>(peer)]);
}

std::string description(const Program& program, const Instruction& instruction) {
    return description(instruction.op, program.groups[static_cast<std::size_t>(instruction.group)], instruction.peer);
}

std::string description(const Program& program, const comm::OperationRecord& record) {
    const auto group = std::ranges::find(program.groups, record.group, &GroupSpec::name);
    if (group == program.groups.end()) return fmt::format("{} in {}", record.operation, record.group);
    return description(record.operation, *group, record.peer);
}

// The task during which something began; -1 where there is none. Tasks ran one after the other.
std::int32_t task_at(std::span<const runtime::RecordedTask> tasks, Seconds time) {
    const auto after = std::ranges::upper_bound(tasks, time, {}, &runtime::RecordedTask::begin);
    if (after == tasks.begin()) return -1;
    return std::prev(after)->end >= time ? std::prev(after)->task : -1;
}

report::RankTrace rank_trace(const Program& program, const runtime::RecordedStep& step, double offset) {
    report::RankTrace rank{.start = step.begin.count - offset, .end = step.end.count - offset};
    for (const Task& task : program.step)
        rank.tasks.push_back(
            {.kind = task.kind, .stage = task.stage, .replica = task.replica, .micro_batch = task.micro_batch});
    for (const runtime::RecordedTask& ran : step.tasks) {
        report::TracedTask& task = rank.tasks[static_cast<std::size_t>(ran.task)];
        task.start = ran.begin.count - offset;
        task.end = ran.end.count - offset;
    }
    for (const runtime::RecordedWait& wait : step.waits)
        rank.waits.push_back(
            {wait.task, description(program, *wait.instruction), wait.begin.count - offset, wait.end.count - offset});
    for (const comm::OperationRecord& record : step.operations)
        rank.communications.push_back({task_at(step.tasks, record.begin), description(program, record), record.bytes,
                                       record.begin.count - offset, record.end.count - offset});
    std::ranges::sort(rank.communications, {}, &report::TracedCommunication::start); // they come as they end
    return rank;
}

void shift(report::RankTrace& rank, double by) {
    auto move = [&](auto& part) {
        part.start += by;
        part.end += by;
    };
    move(rank);
    std::ranges::for_each(rank.tasks, move);
    std::ranges::for_each(rank.waits, move);
    std::ranges::for_each(rank.communications, move);
}

} // namespace

std::vector<report::TracedStep> steps_of_rank(const Program& program, std::span<const runtime::RecordedStep> steps,
                                              Seconds offset) {
    std::vector<report::TracedStep> traced;
    for (const runtime::RecordedStep& step : steps)
        traced.push_back({.step = step.step, .ranks = {rank_trace(program, step, offset.count)}});
    return traced;
}

std::vector<report::TracedStep> joined_steps(std::span<const std::vector<report::TracedStep>> ranks) {
    std::vector<report::TracedStep> joined = ranks.front();
    for (const std::vector<report::TracedStep>& rank : ranks.subspan(1)) {
        TUTTI_CHECK(rank.size() == joined.size(), "ranks traced {} and {} steps", joined.size(), rank.size());
        for (std::size_t i = 0; i < rank.size(); ++i) {
            TUTTI_CHECK(rank[i].step == joined[i].step, "ranks traced steps {} and {}", joined[i].step, rank[i].step);
            joined[i].ranks.push_back(rank[i].ranks.front());
        }
    }
    const double begin = joined.empty() ? 0 : joined.front().start();
    for (report::TracedStep& step : joined)
        for (report::RankTrace& rank : step.ranks) shift(rank, -begin);
    return joined;
}

report::RankTrace simulated_rank(const simulate::Outline& outline, const simulate::SimulatedRank& simulated,
                                 std::span<const report::TracedTask> tasks) {
    report::RankTrace rank{.start = 0, .end = simulated.time};
    auto named = [&](const simulate::OutlineCommunication& communication) {
        const GroupSpec& group = outline.groups[static_cast<std::size_t>(communication.group)];
        const auto peer = std::ranges::find(group.members, communication.peer);
        return description(communication.name, group,
                           communication.peer < 0 ? -1 : static_cast<int>(peer - group.members.begin()));
    };
    rank.tasks.assign(tasks.begin(), tasks.end());
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
        rank.tasks[i].start = simulated.tasks[i].start;
        rank.tasks[i].end = simulated.tasks[i].end;
    }
    for (const simulate::SimulatedWait& wait : simulated.waits)
        rank.waits.push_back({wait.task, named(outline.communications[static_cast<std::size_t>(wait.communication)]),
                              wait.start, wait.end});
    for (std::size_t i = 0; i < outline.communications.size(); ++i)
        rank.communications.push_back({outline.communications[i].task, named(outline.communications[i]),
                                       outline.communications[i].bytes, simulated.communications[i].start,
                                       simulated.communications[i].end});
    return rank;
}

std::string to_text(std::span<const report::TracedStep> steps) {
    Json all = Json::array();
    for (const report::TracedStep& step : steps) {
        const report::RankTrace& rank = step.ranks.front();
        Json tasks = Json::array(), waits = Json::array(), communications = Json::array();
        for (const report::TracedTask& task : rank.tasks)
            tasks.push_back(
                {static_cast<int>(task.kind), task.stage, task.replica, task.micro_batch, task.start, task.end});
        for (const report::TracedWait& wait : rank.waits) waits.push_back({wait.task, wait.what, wait.start, wait.end});
        for (const report::TracedCommunication& one : rank.communications)
            communications.push_back({one.task, one.what, one.bytes.count, one.start, one.end});
        all.push_back({step.step, rank.start, rank.end, std::move(tasks), std::move(waits), std::move(communications)});
    }
    return all.dump();
}

std::vector<report::TracedStep> parse_steps(std::string_view text) {
    std::vector<report::TracedStep> steps;
    for (const Json& step : Json::parse(text)) {
        report::RankTrace rank{.start = step.at(1), .end = step.at(2)};
        for (const Json& task : step.at(3))
            rank.tasks.push_back({static_cast<TaskKind>(task.at(0).get<int>()), task.at(1), task.at(2), task.at(3),
                                  task.at(4), task.at(5)});
        for (const Json& wait : step.at(4)) rank.waits.push_back({wait.at(0), wait.at(1), wait.at(2), wait.at(3)});
        for (const Json& one : step.at(5))
            rank.communications.push_back(
                {one.at(0), one.at(1), {one.at(2).get<std::int64_t>()}, one.at(3), one.at(4)});
        steps.push_back({.step = step.at(0), .ranks = {std::move(rank)}});
    }
    return steps;
}

} // namespace tutti::train

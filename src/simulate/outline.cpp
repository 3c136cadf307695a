#include "simulate/outline.h"

#include "base/checked.h"
#include "base/error.h"
#include "costs/collectives.h"
#include "costs/operator_cost.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tutti::simulate {

Bytes bytes_of(const Instruction& instruction) {
    Bytes bytes;
    for (const Argument& input : instruction.inputs) bytes += input.type.bytes();
    for (const Argument& output : instruction.outputs) bytes += output.type.bytes();
    return bytes;
}

namespace {

using Json = nlohmann::json;
using Kind = OutlineAction::Kind;

class Outliner {
  public:
    Outliner(const Program& program, int rank, const OperatorSet& operators, const costs::KernelTimes& times,
             const KernelSpeed& kernels, const LinkSpeed& link)
        : program_(program), rank_(rank), operators_(operators), times_(times), kernels_(kernels), link_(link),
          messages_(program.step.size()), known_(program.segments.size()) {
        for (std::size_t s = 0; s < known_.size(); ++s) known_[s].resize(program.segments[s].instructions.size());
        result_.groups = program.groups;
    }

    Outline run() {
        for (std::size_t i = 0; i < program_.step.size(); ++i) add(i);
        return std::move(result_);
    }

  private:
    void add(std::size_t number) {
        const Task& task = program_.step[number];
        OutlineTask outline;
        for (std::int32_t wait : task.waits) take(messages_[static_cast<std::size_t>(wait)], outline.awaited);
        if (task.kind == TaskKind::reduce || task.kind == TaskKind::norm) take(detached_, outline.awaited);
        if (task.segment >= 0) run_segment(number, outline);
        result_.tasks.push_back(std::move(outline));
    }

    void run_segment(std::size_t number, OutlineTask& outline) {
        const Task& task = program_.step[number];
        const auto& instructions = program_.segments[static_cast<std::size_t>(task.segment)].instructions;
        const bool is_message = task.kind == TaskKind::send || task.kind == TaskKind::receive;
        std::vector<std::int32_t> under_way(instructions.size(), -1);
        auto wait_for = [&](std::int32_t& communication) {
            if (communication >= 0) outline.actions.push_back({Kind::wait, communication});
            communication = -1;
        };
        for (std::size_t i = 0; i < instructions.size(); ++i) {
            const Instruction& instruction = instructions[i];
            for (std::int32_t wait : instruction.waits) wait_for(under_way[static_cast<std::size_t>(wait)]);
            if (!is_run_by(instruction, task)) continue;
            if (instruction.lane != Lane::communication) {
                compute(outline, seconds_of(task, i));
            } else if (is_hand_over(instruction)) {
                if (instruction.kind == InstructionKind::receive) compute(outline, copy_seconds(instruction));
            } else {
                const std::int32_t started = start(number, instruction);
                outline.actions.push_back({Kind::start, started});
                if (is_message)
                    messages_[number].push_back(started);
                else if (is_detached(instruction))
                    detached_.push_back(started);
                else
                    under_way[i] = started;
            }
        }
        for (std::int32_t& communication : under_way) wait_for(communication);
    }

    // Found once for every instruction, in each of its two forms.
    double seconds_of(const Task& task, std::size_t i) {
        const auto segment = static_cast<std::size_t>(task.segment);
        const Instruction& instruction = program_.segments[segment].instructions[i];
        const bool accumulate = accumulates(instruction, task);
        std::optional<double>& known = known_[segment][i][accumulate ? 1 : 0];
        if (!known) known = times_.of(instruction, accumulate);
        if (!known) known = kernel_seconds(instruction, operators_, kernels_);
        return *known;
    }

    static void take(std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
        to.insert(to.end(), from.begin(), from.end());
        from.clear();
    }

    static void compute(OutlineTask& outline, double seconds) {
        if (!outline.actions.empty() && outline.actions.back().kind == Kind::compute)
            outline.actions.back().seconds += seconds;
        else
            outline.actions.push_back({Kind::compute, -1, seconds});
    }

    const GroupSpec& group_of(const Instruction& instruction) const {
        return program_.groups[static_cast<std::size_t>(instruction.group)];
    }

    // Between stages of this rank.
    bool is_hand_over(const Instruction& instruction) const {
        return instruction.peer >= 0 &&
               group_of(instruction).members[static_cast<std::size_t>(instruction.peer)] == rank_;
    }

    double copy_seconds(const Instruction& receive) const {
        return kernels_.launch + 2 * static_cast<double>(bytes_of(receive).count) / kernels_.bytes;
    }

    std::int32_t start(std::size_t task, const Instruction& instruction) {
        const GroupSpec& group = group_of(instruction);
        result_.communications.push_back(
            {.task = narrow<std::int32_t>(task),
             .group = instruction.group,
             .peer = instruction.peer < 0 ? -1 : group.members[static_cast<std::size_t>(instruction.peer)],
             .sends = instruction.kind == InstructionKind::send,
             .bytes = communicated_bytes(instruction),
             .seconds = communication_seconds(instruction, static_cast<int>(group.members.size()), link_),
             .name = instruction.op});
        return narrow<std::int32_t>(result_.communications.size() - 1);
    }

    const Program& program_;
    int rank_;
    const OperatorSet& operators_;
    const costs::KernelTimes& times_;
    const KernelSpeed& kernels_;
    const LinkSpeed& link_;
    std::vector<std::vector<std::int32_t>> messages_; // per task
    std::vector<std::int32_t> detached_;
    std::vector<std::vector<std::array<std::optional<double>, 2>>> known_; // per segment and instruction
    Outline result_;
};

} // namespace

Outline outline_of(const Program& program, int rank, const OperatorSet& operators, const costs::KernelTimes& times,
                   const KernelSpeed& kernels, const LinkSpeed& link) {
    return Outliner(program, rank, operators, times, kernels, link).run();
}

double kernel_seconds(const Instruction& instruction, const OperatorSet& operators, const KernelSpeed& speed) {
    const Cost cost = costs::cost_of(operators, instruction.op, costs::types_of(instruction.inputs),
                                     costs::types_of(instruction.outputs), instruction.attributes);
    return speed.launch + std::max(cost.flops.count / speed.flops, static_cast<double>(cost.bytes.count) / speed.bytes);
}

double communication_seconds(const Instruction& instruction, int ranks, const LinkSpeed& speed) {
    const Bytes bytes = communicated_bytes(instruction);
    if (instruction.peer >= 0) return speed.latency + static_cast<double>(bytes.count) / speed.bytes;
    return costs::collective_seconds(costs::collective_of(instruction.kind), bytes, ranks, speed);
}

std::string to_text(const Outline& outline) {
    Json groups = Json::array(), communications = Json::array(), tasks = Json::array();
    for (const GroupSpec& group : outline.groups) groups.push_back({group.name, group.channel, group.members});
    for (const OutlineCommunication& one : outline.communications)
        communications.push_back({one.task, one.group, one.peer, one.sends, one.bytes.count, one.seconds, one.name});
    for (const OutlineTask& task : outline.tasks) {
        Json actions = Json::array();
        for (const OutlineAction& action : task.actions)
            actions.push_back({static_cast<int>(action.kind), action.communication, action.seconds});
        tasks.push_back({task.awaited, std::move(actions)});
    }
    return Json{std::move(groups), std::move(communications), std::move(tasks)}.dump();
}

Outline parse_outline(std::string_view text) {
    const Json json = Json::parse(text);
    Outline outline;
    for (const Json& group : json.at(0))
        outline.groups.push_back({.name = group.at(0), .members = group.at(2), .channel = group.at(1)});
    for (const Json& one : json.at(1))
        outline.communications.push_back({.task = one.at(0),
                                          .group = one.at(1),
                                          .peer = one.at(2),
                                          .sends = one.at(3),
                                          .bytes = {one.at(4).get<std::int64_t>()},
                                          .seconds = one.at(5),
                                          .name = one.at(6)});
    for (const Json& task : json.at(2)) {
        OutlineTask& made = outline.tasks.emplace_back();
        made.awaited = task.at(0).get<std::vector<std::int32_t>>();
        for (const Json& action : task.at(1))
            made.actions.push_back({static_cast<Kind>(action.at(0).get<int>()), action.at(1), action.at(2)});
    }
    return outline;
}

} // namespace tutti::simulate

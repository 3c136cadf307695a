#include "planner/evaluate/overlap.h"

#include "planner/evaluate/segments.h"

#include <algorithm>
#include <array>

namespace tutti::planner {
namespace {

using Kind = OverlapAction::Kind;

} // namespace

std::vector<OverlapAction> overlap_actions(const Program& program, const Segment& segment,
                                           const costs::CostModel& costs, int kind,
                                           std::vector<OverlapCommunication>& communications) {
    std::vector<OverlapAction> actions;
    std::vector<std::int32_t> under_way(segment.instructions.size(), -1);
    auto wait_for = [&](std::int32_t& communication) {
        if (communication >= 0) actions.push_back({Kind::wait, communication});
        communication = -1;
    };
    for (std::size_t i = 0; i < segment.instructions.size(); ++i) {
        const Instruction& instruction = segment.instructions[i];
        for (std::int32_t wait : instruction.waits) wait_for(under_way[static_cast<std::size_t>(wait)]);
        if (is_detached(instruction) || instruction.only_last) continue; // once a step, and told of there
        if (instruction.lane == Lane::communication) {
            const GroupSpec& group = program.groups[static_cast<std::size_t>(instruction.group)];
            under_way[i] = static_cast<std::int32_t>(communications.size());
            communications.push_back({costs::collective_of(instruction.kind), communicated_bytes(instruction),
                                      group.kind != GroupKind::tensor});
            actions.push_back({Kind::start, under_way[i]});
            continue;
        }
        const double seconds = costs.kernel_seconds(instruction, kind);
        if (!actions.empty() && actions.back().kind == Kind::compute)
            actions.back().seconds += seconds;
        else
            actions.push_back({Kind::compute, -1, seconds});
    }
    for (std::int32_t& communication : under_way) wait_for(communication);
    return actions;
}

OverlapTime overlapped_time(std::span<const OverlapAction> actions,
                            std::span<const OverlapCommunication> communications, const GroupShapes& shapes,
                            const costs::CostModel& costs, int kind) {
    const costs::Contention contention = costs.contention(kind);
    OverlapTime time;
    double now = 0;
    std::array<double, 2> lanes{};                      // when the tensor group and the replicas are free again
    std::vector<double> ends(communications.size(), 0); // of those that were started
    for (const OverlapAction& action : actions) {
        const auto number = static_cast<std::size_t>(action.communication);
        switch (action.kind) {
        case Kind::compute: {
            const double busy = std::max(lanes[0], lanes[1]) - now;
            const double beside = std::clamp(busy / contention.communication, 0.0, action.seconds);
            now += action.seconds + (contention.compute - 1) * beside;
            const double later = (contention.communication - 1) * beside;
            for (double& lane : lanes)
                if (lane > now - action.seconds) lane += later;
            for (double& end : ends)
                if (end > now - action.seconds) end += later;
            break;
        }
        case Kind::start: {
            const OverlapCommunication& communication = communications[number];
            double& lane = lanes[communication.replicas ? 1 : 0];
            lane = std::max(lane, now) + costs.collective_seconds(communication.what, communication.bytes,
                                                                  communication.replicas ? shapes.data : shapes.tensor,
                                                                  kind);
            ends[number] = lane;
            break;
        }
        case Kind::wait:
            if (ends[number] > now) {
                time.exposed += ends[number] - now;
                now = ends[number];
            }
            break;
        }
    }
    time.seconds = now;
    return time;
}

} // namespace tutti::planner

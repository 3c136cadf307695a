// The time of a segment: its kernels one after the other, its collectives beside them until an instruction waits for
// them. While both run, each is slowed down by the device's contention.
#pragma once

#include "costs/cost_model.h"
#include "program/program.h"

#include <span>
#include <vector>

namespace tutti::planner {

struct GroupShapes;

// A collective of the tensor group, or of the replicas (where ZeRO shards weights or gradients).
struct OverlapCommunication {
    costs::Collective what = costs::Collective::all_reduce;
    Bytes bytes;
    bool replicas = false;
};

struct OverlapAction {
    enum class Kind : std::uint8_t { compute, start, wait };
    Kind kind = Kind::compute;
    std::int32_t communication = -1;
    double seconds = 0;
};

struct OverlapTime {
    double seconds = 0;
    double exposed = 0; // of these, waiting
};

// Appends the segment's collectives to `communications`.
std::vector<OverlapAction> overlap_actions(const Program& program, const Segment& segment,
                                           const costs::CostModel& costs, int kind,
                                           std::vector<OverlapCommunication>& communications);

OverlapTime overlapped_time(std::span<const OverlapAction> actions,
                            std::span<const OverlapCommunication> communications, const GroupShapes& shapes,
                            const costs::CostModel& costs, int kind);

} // namespace tutti::planner

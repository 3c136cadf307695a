// PlannedResidency: the offloading decisions of one rank, as a plan records them. Everything else follows from them and
// the rank's programs, without timing: offsets on the device, the order of copies, places in host memory and on disk.
#pragma once

#include "base/speed.h"
#include "offload/residency.h"
#include "offload/time_points.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::offload {

struct OffloadPlan;

// A residency interval: the time points of its first and last use. If it goes on into the next step, `last` has the
// number of time points added.
struct Interval {
    std::int32_t first = 0, last = 0;
    bool operator==(const Interval&) const = default;
};

struct ResidentIntervals {
    ChunkResident resident;
    BackingTier tier = BackingTier::device; // the memory that backs it
    bool always = false;                    // on the device
    std::vector<Interval> intervals{};
    bool operator==(const ResidentIntervals&) const = default;
};

struct PlannedStep { // of training, or of evaluation
    Bytes capacity{};
    std::vector<ResidentIntervals> residents{};
    double seconds = 0, exposed = 0; // predicted: of a step, and of that, waiting for copies
    bool operator==(const PlannedStep&) const = default;
};

struct PlannedResidency {
    std::vector<std::int32_t> host_updates{}; // chunks that the host updates
    bool later_updates = false;               // the device does its own in the next step, where that is possible
    PlannedStep training{};
    std::optional<PlannedStep> evaluation{}; // none: the run evaluates nothing
    // Speeds that were timed and weighed.
    CopySpeed host{};
    std::optional<CopySpeed> disk{};
    double host_update_bytes = 0; // operands per second
    bool operator==(const PlannedResidency&) const = default;
};

PlannedResidency recorded(const OffloadPlan& plan);

struct FollowOptions {
    bool prefetch = true;         // residents may be fetched before they are needed
    InstructionSeconds seconds{}; // for pictures of the step; none: time points take no time
};

// The OffloadPlan of a record. `training` has its updates where the record wants them; `evaluation` may be null. Error
// if the record does not fit the programs.
OffloadPlan follow(const PlannedResidency& record, const Program& training, const Program* evaluation,
                   const FollowOptions& options);

// "weights 3 in host: 0-12 30-41", "moments1 0 in device: always"
std::string to_text(const ResidentIntervals& resident);
std::optional<ResidentIntervals> parse_resident(const std::string& text);

} // namespace tutti::offload

// Residency: which chunks are in a memory that is too small for all of them, and when. Residents (chunks, pieces of
// activations) have a backing tier in a slower memory. A step uses them at known time points, so every eviction and
// fetch is decided before the first step.
//
// A step is a circle of time points: the residents on the device at its end are there when the next step begins. A
// *residency interval* is a run of uses of one resident during which it lies on the device, at one place. Between
// intervals only its copy in the backing tier counts, in host memory or on a disk. Copies run beside the computation,
// on a lane for each direction of each tier. A resident is fetched as soon as its place is free.
//
// Some work is done by the host on the copies in host memory, on a lane of its own. It begins when its time point has
// come and its residents are in host memory; their next intervals fetch the results.
#pragma once

#include "base/speed.h"
#include "base/units.h"
#include "offload/policy.h"
#include "program/program.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::offload {

struct ResidentUse {
    std::int32_t time_point = 0;
    std::int32_t resident = 0;
    Access access = Access::read; // write: what was there before is not needed
    bool on_host = false;         // used by the host; all uses of a resident at one time point agree

    bool needs_content() const { return access != Access::write; }
    bool changes_content() const { return access != Access::read; }
};

// Which memory backs a resident between its intervals. Device: it never leaves, or its content is dead between
// intervals.
enum class BackingTier : std::uint8_t { device, host, disk };
std::string_view name_of(BackingTier tier);

struct ResidencyProblem {
    std::vector<Bytes> residents{};  // sizes
    std::vector<ResidentUse> uses{}; // in the order of time points
    std::vector<double> seconds{};   // per time point, how long it computes
    std::vector<double> on_host{};   // and how long the host's work takes; may end with the last such time point
    Bytes capacity{};                // of the device's memory
    CopySpeed host{};                // between host memory and device
    std::optional<Bytes> room{};     // for backing in host memory, if the rest may be on a disk
    CopySpeed disk{};                // between disk and device
    Eviction eviction = Eviction::farthest_use;
    bool ahead = true; // residents may be fetched before they are needed

    std::int32_t time_points() const { return static_cast<std::int32_t>(seconds.size()); }
    double seconds_on_host(std::size_t time_point) const {
        return time_point < on_host.size() ? on_host[time_point] : 0;
    }
};

struct ResidencyInterval {
    std::int32_t resident = 0;
    std::int32_t first = 0, last = 0; // time points of use; from the number of time points on: of the next step
    std::int32_t issue = 0;           // from this time point on its place is free; below 0: of the step before
    bool always = false;              // it never leaves, and needs no backing tier
    bool fetched = false;             // its content is fetched before the first use
    bool returned = false;            // and written back after the last
    std::int64_t offset = 0;
    std::vector<std::int32_t> after{}; // intervals that had its place or its resident before; itself: a step ago

    bool operator==(const ResidencyInterval&) const = default;
};

struct ResidencyPlan {
    std::vector<ResidencyInterval> intervals; // in the order of `issue`, then of `first`
    std::vector<BackingTier> tiers{};         // of residents
    Bytes memory{};                           // that they reach up to
    Bytes fetched{}, returned{};              // per step
    Bytes least{};                            // that any plan copies per step, both ways together
    double seconds = 0;                       // of a step: its time points, and
    double exposed = 0;                       //            what they wait for copies

    bool operator==(const ResidencyPlan&) const = default;
};

// Error where the residents of one time point do not fit, saying what would be enough.
ResidencyPlan plan_residency(const ResidencyProblem& problem);

// A plan with these intervals: gives them places, and predicts no time. Nothing if memory is too fragmented.
std::optional<ResidencyPlan> lay_out(const ResidencyProblem& problem, std::vector<ResidencyInterval> intervals,
                                     std::vector<BackingTier> tiers);

// The least capacity that any plan needs; and a capacity, hardly larger, for which there is a plan.
Bytes least_capacity(const ResidencyProblem& problem);
Bytes enough_capacity(ResidencyProblem problem);

// Rules that the runtime relies on. Every use on the device lies in an interval of its resident; every use by the host
// lies in none, and before the next one is issued. Intervals that overlap in time do not overlap in memory, and none
// reaches beyond the capacity. Needed content is fetched. Changes are written back unless the next use overwrites them.
// Throws Bug.
void verify(const ResidencyProblem& problem, const ResidencyPlan& plan);

} // namespace tutti::offload

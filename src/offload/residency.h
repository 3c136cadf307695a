// Residency: what lies in a memory that is too small for everything, and when. Residents (chunks, slots of activations)
// have a home in a slower memory; a step uses them at known moments, so what stays, what goes and when it comes back is
// decided before the first step.
//
// A step is a circle of moments: what is there at its end is there when the next one begins. A *stay* is a stretch of
// uses of one resident during which it lies on the device, at one place. Between stays it is at home, in host memory or
// on a disk. Copies run on lanes of their own, one for each way to each of the two, beside the computing: a resident
// comes as soon as its place is free.
//
// Some work is done where residents are at home, by another processor, on a lane of its own: it begins when its
// moment's turn has come and what it uses is at home, and the next stay of that fetches what it leaves.
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
    std::int32_t moment = 0;
    std::int32_t resident = 0;
    Access access = Access::read; // write: what was there before is not needed
    bool at_home = false;         // never so and otherwise at one moment

    bool needs_content() const { return access != Access::write; }
    bool changes_content() const { return access != Access::read; }
};

// Where a resident is between its stays. Device: it never leaves, or nothing of it is needed between stays.
enum class HomeTier : std::uint8_t { device, host, disk };
std::string_view name_of(HomeTier tier);

struct ResidencyProblem {
    std::vector<Bytes> residents{};  // sizes
    std::vector<ResidentUse> uses{}; // in the order of moments
    std::vector<double> seconds{};   // per moment, how long it computes
    std::vector<double> at_home{};   // and how long work at home takes; may end with the last such moment
    Bytes capacity{};                // of the device's memory
    CopySpeed host{};                // between host memory and device
    std::optional<Bytes> room{};     // for homes in host memory, where the rest may be on a disk
    CopySpeed disk{};                // between disk and device
    Eviction eviction = Eviction::farthest_use;
    bool ahead = true; // residents may come before they are needed

    std::int32_t moments() const { return static_cast<std::int32_t>(seconds.size()); }
    double seconds_at_home(std::size_t moment) const { return moment < at_home.size() ? at_home[moment] : 0; }
};

struct Stay {
    std::int32_t resident = 0;
    std::int32_t first = 0, last = 0; // moments of use; from the number of moments on: of the next step
    std::int32_t issue = 0;           // from this moment on its place is free; below 0: of the step before
    bool always = false;              // it never leaves, and needs no home
    bool fetched = false;             // its content comes from home before the first use
    bool returned = false;            // and goes back there after the last
    std::int64_t offset = 0;
    std::vector<std::int32_t> after{}; // stays that were there before it, or of its resident; itself: a step ago

    bool operator==(const Stay&) const = default;
};

struct ResidencyPlan {
    std::vector<Stay> stays;       // in the order of `issue`, then of `first`
    std::vector<HomeTier> homes{}; // of residents
    Bytes memory{};                // that they reach up to
    Bytes fetched{}, returned{};   // per step
    Bytes least{};                 // that any plan copies per step, both ways together
    double seconds = 0;            // of a step: its moments, and
    double exposed = 0;            //            what they wait for copies

    bool operator==(const ResidencyPlan&) const = default;
};

// Error where the residents of one moment do not fit, saying what would be enough.
ResidencyPlan plan_residency(const ResidencyProblem& problem);

// A plan of these stays, without the time that it takes: gives them places. Nothing where memory falls into pieces too
// small.
std::optional<ResidencyPlan> lay_out(const ResidencyProblem& problem, std::vector<Stay> stays,
                                     std::vector<HomeTier> homes);

// The least capacity that any plan needs, and one, hardly more, for which there is a plan.
Bytes least_capacity(const ResidencyProblem& problem);
Bytes enough_capacity(ResidencyProblem problem);

// Rules the runtime relies on: every use lies in a stay of its resident, or, at home, in none and before the next one
// is issued; stays that are there together do not overlap, nothing reaches beyond the capacity, content that is needed
// was fetched, and what changed is returned unless the next use overwrites it. Throws Bug.
void verify(const ResidencyProblem& problem, const ResidencyPlan& plan);

} // namespace tutti::offload

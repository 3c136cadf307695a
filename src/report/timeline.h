// Timeline: what a picture of a schedule shows, whoever draws it. Times and activations are in the units of the costs.
#pragma once

#include "schedule/evaluate.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::report {

enum class BoxKind : std::uint8_t { forward, recompute, backward, weight_gradient, full_backward, update };
constexpr std::size_t box_kinds = 6;
enum class IdleCause : std::uint8_t { warm_up, steady, cool_down, communication };
constexpr std::size_t idle_causes = 4;

struct Box {
    BoxKind kind = BoxKind::forward;
    double start = 0, end = 0;
    double recomputing = 0; // how much of a backward is recomputing first
    int stage = 0, replica = 0, micro_batch = 0;
    int turn = 0; // which of its model replica's stages on the rank it is of: 0 to V-1

    double compute_start() const { return start + recomputing; }
    bool operator==(const Box&) const = default;
};

struct Idle {
    double start = 0, end = 0;
    IdleCause cause = IdleCause::steady;
    bool operator==(const Idle&) const = default;
};

// Activations held from `time` on.
struct Held {
    double time = 0, activations = 0;
    bool operator==(const Held&) const = default;
};

struct TimelineRow {
    std::vector<Box> boxes; // in order
    std::vector<Idle> idle; // in order; with the boxes they fill the step, neighbours of one cause being one
    std::vector<Held> held; // a step function: begins at 0, ends with the step
    double peak = 0;
    double busy = 0;
    double window_idle = 0;
};

struct Timeline {
    std::string title;                                      // "1f1b"
    std::vector<std::pair<std::string, std::string>> facts; // parameters that matter, for people
    double time = 0, bubble = 0, peak = 0;
    int turns = 1, model_replicas = 1;
    std::vector<TimelineRow> rows; // per rank

    bool has(BoxKind kind) const;
    bool has(IdleCause cause) const;
    bool recomputes() const; // a box of its own, or a part of a backward
};

// The evaluation must be that of this schedule with these costs.
Timeline make_timeline(const schedule::Schedule& schedule, const schedule::Costs& costs,
                       const schedule::Evaluation& evaluation);

std::string_view name_of(BoxKind kind);        // "F", "R", "B", "W", "BW", "U"
std::string_view description_of(BoxKind kind); // "forward", "input gradient", ..: for legends
std::string_view name_of(IdleCause cause);     // "warm-up", ...
std::string plain_number(double number);       // at most five digits, no zeros at the end: "12", "0.33333"

} // namespace tutti::report

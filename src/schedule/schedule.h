// Schedule: for every rank an ordered list of tasks. Flat, so that evaluating one walks memory in order.
#pragma once

#include "schedule/parameters.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::schedule {

enum class Work : std::uint8_t {
    forward,         // F
    recompute,       // R: the activations of a forward that kept only its input
    backward,        // B: input gradient
    weight_gradient, // W
    full_backward,   // BW: both in one
};

struct ScheduledTask {
    Work work = Work::forward;
    bool recomputes = false; // a forward: keeps only its input. A backward: recomputes first
    std::uint16_t replica = 0;
    std::uint16_t stage = 0;
    std::int32_t micro_batch = 0;

    bool operator==(const ScheduledTask&) const = default;
};

constexpr bool is_backward(Work work) { return work == Work::backward || work == Work::full_backward; }

struct Schedule {
    ScheduleParameters parameters;      // resolved
    std::vector<ScheduledTask> tasks{}; // rank after rank, each in its order
    std::vector<std::int32_t> first{};  // first task of every rank, and the number of all

    int ranks() const { return static_cast<int>(first.size()) - 1; }
    std::span<const ScheduledTask> rank(int index) const {
        return std::span(tasks).subspan(first[index], first[index + 1] - first[index]);
    }
    bool operator==(const Schedule&) const = default;
};

// Whether weight gradients are tasks of their own. Parameters may not say: a family decides by itself.
bool splits_backward(const Schedule& schedule);

// Of what one task makes for another on a different rank: an activation for the next stage's forward, a gradient for
// the backward of the stage before. Indices into Schedule::tasks; `boundary` is the lower of both stages.
struct Message {
    std::int32_t sender, receiver;
    std::int32_t from, to; // ranks
    std::int32_t replica, boundary;
};
std::vector<Message> messages(const Schedule& schedule); // in the order of their senders' tasks
// With those between stages of one rank.
std::vector<Message> handovers(const Schedule& schedule);

std::string_view name_of(Work work); // "F", "R", "B", "W", "BW"
// Work, micro-batch, stage where it is not 0, a ' per model replica, * where the task recomputes: "F2", "BW2.1*",
// "B2.3'".
std::string to_string(const ScheduledTask& task);
ScheduledTask parse_task(std::string_view text); // Error where it is none
std::string to_text(const Schedule& schedule);   // a line per rank

} // namespace tutti::schedule

// RunTrace: what the ranks of a run did in a few steps, and the prediction of one step. `tutti train --trace` writes it
// as a Chrome trace, which Perfetto (ui.perfetto.dev) opens; `tutti report` reads it again. Times are seconds from the
// start of the first traced step, on the clock of rank 0.
#pragma once

#include "base/speed.h"
#include "base/units.h"
#include "program/program.h"

#include <string>
#include <string_view>
#include <vector>

namespace tutti::report {

struct TracedTask { // at its place in Program::step
    TaskKind kind = TaskKind::forward;
    std::int32_t stage = 0, replica = 0, micro_batch = 0;
    double start = 0, end = 0;

    double duration() const { return end - start; }
    bool operator==(const TracedTask&) const = default;
};

struct TracedWait {
    std::int32_t task = -1; // before or in which it was; -1: at the end of the step
    std::string what;       // "receive from rank 1"
    double start = 0, end = 0;
    bool operator==(const TracedWait&) const = default;
};

struct TracedCommunication {
    std::int32_t task = -1; // that started it
    std::string what;       // "all_reduce in tensor"
    Bytes bytes;
    double start = 0, end = 0;
    bool operator==(const TracedCommunication&) const = default;
};

// A step on one rank.
struct RankTrace {
    double start = 0, end = 0;
    std::vector<TracedTask> tasks{};
    std::vector<TracedWait> waits{};
    std::vector<TracedCommunication> communications{};

    bool operator==(const RankTrace&) const = default;
};

struct TracedStep {
    std::int64_t step = 0;
    std::vector<RankTrace> ranks{};

    double start() const; // of the first rank
    double end() const;   // of the last
    double duration() const { return end() - start(); }
    bool operator==(const TracedStep&) const = default;
};

struct RunTrace {
    std::string model, mesh, schedule, device; // for people; the schedule is empty where there is none
    std::vector<Seconds> offsets{};            // of the ranks' clocks against that of rank 0; taken off already
    KernelSpeed kernels{};                     // of rank 0
    LinkSpeed link{};
    std::vector<TracedStep> steps{};    // in order, with the same ranks
    std::vector<RankTrace> simulated{}; // of the same ranks with the same tasks; the step begins at 0

    int ranks() const { return static_cast<int>(simulated.size()); }
    bool operator==(const RunTrace&) const = default;
};

// "F2", "B2.3'": work, micro-batch, stage where it is not 0, a ' per copy. "send F2", "reduce", "load 2".
std::string name_of(const TracedTask& task);

std::string to_chrome(const RunTrace& trace);
// Error naming `where` where it is no trace of a run, or one that does not hold together.
RunTrace parse_run_trace(std::string_view text, const std::string& where);
// A trace file, or the folder of a run with a trace.json.
RunTrace read_run_trace(const std::string& place);

} // namespace tutti::report

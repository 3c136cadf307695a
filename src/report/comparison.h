// Compares a measured step with the simulated one, task by task and by kind of work on every rank.
#pragma once

#include "report/run_trace.h"
#include "report/timeline.h"

namespace tutti::report {

// Both in seconds.
struct Compared {
    double measured = 0, simulated = 0;

    double difference() const { return measured - simulated; }
    // By how much the measured is more than the simulated, as a share of it; 0 where both are 0.
    double share() const;
};

struct ComparedTask {
    int rank = 0;
    TracedTask task; // as measured
    Compared start;  // from the start of the step
    Compared duration;
};

// All that a rank did of one kind. The time of a message is from its posting to its arrival.
struct ComparedKind {
    int rank = 0;
    TaskKind kind = TaskKind::forward;
    int count = 0;
    Compared time;
};

struct Comparison {
    std::int64_t step = 0;             // the one that is shown: the median of those traced
    Compared time;                     // of the step
    Compared bubble;                   // the share of it in which ranks do not compute
    std::vector<ComparedTask> tasks{}; // rank after rank
    std::vector<ComparedKind> kinds{};
    std::vector<Compared> waiting{};  // per rank
    Timeline measured{}, simulated{}; // in milliseconds
};

Comparison compare(const RunTrace& trace);

// "F", "B", "send", "reduce": as tables show them.
std::string short_name(TaskKind kind);

} // namespace tutti::report

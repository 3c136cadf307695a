// TrainListener: what a training run reports before its first step, after each step, and at its end.
#pragma once

#include "base/speed.h"
#include "base/units.h"
#include "plan/plan.h"
#include "run/memory_table.h"

#include <optional>
#include <string>
#include <vector>

namespace tutti::run {

struct OffloadSummary {                            // of this rank's offloaded model data, as planned
    Bytes fetched, returned;                       // per step
    Bytes least;                                   // that any plan copies
    Seconds step, exposed;                         // predicted: a step, and what of it waits for copies
    std::int64_t updates = 0, updates_on_host = 0; // chunks that are updated, and those by the host
    std::int64_t updates_later = 0;                // those that the next step does
    CopySpeed host;                                // as timed: copies between host memory and device,
    std::optional<CopySpeed> disk{};               // those of a disk,
    double host_updates = 0;                       // and updates by the host, in bytes of operands per second
};

struct RunSummary { // known before the first step
    Plan plan;
    MemoryTable memory;             // of this rank
    std::vector<Bytes> rank_memory; // what the tables of all ranks add up to, each
    std::string architecture, data, device;
    std::int64_t parameters = 0;
    int blocks = 0; // of the model, which stages are cut from and of which some may be recomputed
    std::int64_t tokens_per_step = 0;
    std::int64_t steps = 0, first_step = 0;
    double flops_per_step = 0; // of all ranks
    std::int64_t chunks = 0;
    double utilisation = 1; // of chunks: elements of tensors, over theirs
    std::optional<OffloadSummary> offload{};
    std::vector<std::string> decided{}; // sentences about what the plan had left open
};

struct StepReport {
    std::int64_t step = 0;
    double loss = 0, gradient_norm = 0, learning_rate = 0;
    Seconds duration;
    std::int64_t tokens = 0; // targets that counted
    double tokens_per_second = 0;
    Bytes memory;         // in use now: of the device, or of the process where it has none of its own
    bool skipped = false; // not finite: nothing was changed
};

struct TriedPlan {
    Plan plan;                         // with what is predicted of it
    std::string what;                  // in words
    std::optional<Seconds> measured{}; // a step
};

struct PlanChoice {           // of a run whose layout was left open
    std::size_t searched = 0; // plans that were evaluated
    std::vector<TriedPlan> tried{};
    std::size_t taken = 0; // of these
};

// A prediction beside the first steps that came after it, and this rank's memory.
struct PredictionCheck {
    std::int64_t steps = 0; // measured
    Seconds predicted, measured;
    Bytes predicted_memory, memory;
};

class TrainListener {
  public:
    virtual ~TrainListener() = default;
    virtual void warning(const std::string&) {}
    virtual void waiting(const std::string&) {} // something that may take a while begins: loading, saving
    virtual void planned(const RunSummary&) {}
    virtual void chosen(const PlanChoice&) {}
    virtual void stepped(const StepReport&) {}
    virtual void compared(const PredictionCheck&) {}
    virtual void evaluated(std::int64_t, double) {} // step, loss
    virtual void saved(const std::string&) {}       // folder of a checkpoint or model
};

struct TrainResult {
    std::int64_t steps_done = 0; // in all, this process and those before it
    std::int64_t steps_run = 0;  // by this process; the losses are theirs
    double first_loss = 0, last_loss = 0;
    bool stopped = false;          // by request, before the last step
    Bytes peak_resident;           // of the process
    std::vector<Bytes> rank_peaks; // the same of every rank's
    Bytes device_memory;           // in use at the end; 0 where the device has none of its own
    Seconds waited; // for model data to come, in all steps; where the device works beside the host, only the host
    std::string model_folder;
};

} // namespace tutti::run

// Tracing: which steps of a run are traced, and how the notes of all ranks become one file, beside a simulation of the
// same programs.
#pragma once

#include "base/speed.h"
#include "comm/group.h"
#include "costs/kernel_times.h"
#include "run/run_config.h"
#include "runtime/trace.h"
#include "train/session/session.h"

#include <memory>
#include <span>
#include <string>

namespace tutti::train {

// Three steps are traced once two have gone by, in which libraries load what they need; in a shorter run the last ones.
struct TracedSteps {
    std::int64_t first = 0, count = 0;
};
TracedSteps traced_steps(const run::RunConfig& config, std::int64_t first_step);

class Tracing {
  public:
    // On every rank: times the device and the links. `world` tells the recorder of its operations from now on.
    Tracing(const run::RunConfig& config, Session& session, comm::World& world, std::int64_t first_step);
    Tracing(const Tracing&) = delete;
    Tracing& operator=(const Tracing&) = delete;
    ~Tracing();

    // For Executor::begin; null where the step is not traced.
    runtime::TraceRecorder* recorder_of(std::int64_t step);
    std::int64_t pause() const { return steps_.first + steps_.count; } // after this many steps the file can be written
    bool is_complete() const { return !is_written_ && recorder_->is_full(); }
    bool is_written() const { return is_written_; }
    // Once, all ranks together, when no step is under way: rank 0 writes what was traced. Returns why there is no file,
    // the same on all ranks; empty where there is one.
    std::string write();

  private:
    void pool(const costs::KernelTimes& mine);
    void write_file(std::span<const std::string> traces, std::span<const std::string> outlines,
                    std::span<const std::string> offsets) const;

    const run::RunConfig& config_;
    Session& session_;
    comm::World& world_;
    TracedSteps steps_;
    costs::KernelTimes times_;
    std::vector<double> slowdowns_; // of all ranks, on rank 0
    KernelSpeed kernels_;           // for what was not timed
    LinkSpeed link_;
    std::shared_ptr<runtime::TraceRecorder> recorder_; // the world may still hold it while it goes
    bool is_written_ = false;
};

} // namespace tutti::train

// Session: a model, its data and a device brought together for training; everything is decided, nothing allocated on
// the device yet.
#pragma once

#include "backend/device.h"
#include "models/model.h"
#include "resolve/prepared_rank.h"
#include "run/listener.h"
#include "train/session/opened_run.h"
#include "train/session/timing_once.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::train {

class Session {
  public:
    // One rank of a world: it owns its part of the model and no more. `given`: its plan; null: as the config says, in
    // the file that it names or by itself.
    // `speeds`: those that residency plans depend on; null: as timed on this machine. `before`: of the run that goes
    // on; followed where it completes the plan that the config asks for.
    Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world, const Plan* given = nullptr,
            const offload::SpeedTable* speeds = nullptr, const Plan* before = nullptr);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const models::ModelSource& source() const { return opened_.source; }
    const models::ModelFacts& facts() const { return opened_.source.facts(); }
    bool has_weights() const { return opened_.has_weights; }         // to begin with, in the model's folder
    std::span<const StoredTensor> stored() const { return stored_; } // of the whole model
    int blocks() const { return blocks_; }                           // likewise
    const std::vector<models::Initialisation>& initialisation() const { return initialisation_; }
    const Plan& plan() const { return plan_; }
    const OpenedData& data() const { return opened_.data; }
    const backend::Device& device() const { return *opened_.device; }
    const fs::path& disk() const { return opened_.disk; } // folder for model data that a disk backs, or none
    const std::vector<std::string>& decided() const { return decided_; } // sentences about what the plan left open
    const compile::Compiled& compiled() const { return *prepared_.compiled; }
    offload::ModelData model_data(std::byte* memory) const;
    offload::ModelData model_data(const offload::BackingStore& backing) const;
    // What is planned of model data that is not always on the device; none where all of it is.
    const std::optional<offload::OffloadPlan>& offload() const { return prepared_.offload; }
    comm::World& world() { return opened_.world(); }
    int rank() const { return opened_.world().rank(); }
    sharding::MeshPlace place() const { return plan_.mesh.place_of(rank()); }
    runtime::Executor& executor() { return *prepared_.executor; }
    void end_groups() { opened_.end_groups(); }                          // nothing runs after that
    runtime::Executor* evaluator() { return prepared_.evaluator.get(); } // null where nothing is evaluated
    // All the memory the device is asked for, in one piece: the chunks, then the scratch that the executors share.
    Bytes device_memory() const { return prepared_.device_memory(); }
    std::byte* scratch_in(const backend::Arena& memory) const;
    const run::MemoryTable& memory() const { return memory_; }
    // What it would be with another plan, all of whose model data is on the device; the kernels' workspace is taken to
    // be the same.
    run::MemoryTable memory_of(const Plan& plan) const;
    // Ranks that are threads share what libraries take. All ranks call it, before one of them allocates.
    void share_libraries();
    double flops_per_step() const; // of this rank

  private:
    Session(const run::RunConfig& config, run::TrainListener& listener, comm::World& world,
            const std::optional<Plan>& followed, const offload::SpeedTable* speeds);
    void resolve(const run::RunConfig& config, run::TrainListener& listener);

    OpenedRun opened_;
    TimingOnce timing_;
    Plan plan_;
    std::vector<StoredTensor> stored_;
    int blocks_ = 0;
    std::vector<models::Initialisation> initialisation_;
    std::vector<std::string> decided_;
    resolve::PreparedRank prepared_;
    run::MemoryTable memory_;
};

} // namespace tutti::train

// Session: a model, its data and a device brought together for training; everything is decided, nothing allocated on
// the device yet.
#pragma once

#include "backend/device.h"
#include "compile/compile.h"
#include "graph/fuse.h"
#include "models/model.h"
#include "runtime/executor.h"
#include "train/batches.h"
#include "train/listener.h"
#include "train/offload.h"
#include "train/pipeline_plan.h"

#include <memory>
#include <optional>

namespace tutti {

// "cpu", "cuda" or "reference". Error naming those where there is no such device. The ranks of a machine share its GPUs
// out among them.
std::unique_ptr<Device> open_device(const std::string& name, int threads, int local_rank = 0);

// Error where it does not compute in this type.
void check_computes(const Device& device, DType dtype);

// Among the processes of this machine.
int local_rank_of(const RunConfig& config, const World& world);
// What a fused head may take for logits, at most; less where that does not fit.
Bytes head_logits_of(const Device& device);

class Session {
  public:
    // One rank of a world: it holds its part of the model and no more. `given`: its plan; null: as the config says.
    // `speeds`: what plans of model data weigh; null: as timed on this machine.
    Session(const RunConfig& config, TrainListener& listener, World& world, const Plan* given = nullptr,
            const SpeedTable* speeds = nullptr);

    const ModelSource& source() const { return source_; }
    const ModelFacts& facts() const { return source_.facts(); }
    bool has_weights() const { return has_weights_; }                // to begin with, in the model's folder
    std::span<const StoredTensor> stored() const { return stored_; } // of the whole model
    const std::vector<Initialisation>& initialisation() const { return initialisation_; }
    const Plan& plan() const { return plan_; }
    const OpenedData& data() const { return data_; }
    const Device& device() const { return *device_; }
    const fs::path& disk() const { return disk_; } // folder for homes, or none
    const Compiled& compiled() const { return *compiled_; }
    // What of a micro-batch's logits this rank has, and after which stage and copy.
    struct Logits {
        TensorSlice slice;
        int stage = 0, copy = 0;
    };
    const std::optional<Logits>& logits() const { return logits_; }
    Holding holding() const;
    ModelData model_data(std::byte* memory) const;
    ModelData model_data(const Homes& homes) const;
    // What is planned of model data that is not always on the device; none where all of it is.
    const std::optional<OffloadPlan>& offload() const { return offload_; }
    World& world() { return groups_.world(); }
    int rank() const { return groups_.world().rank(); }
    MeshPlace place() const { return plan_.mesh.place_of(rank()); }
    Executor& executor() { return *executor_; }
    void end_groups() { // nothing runs after that
        links_.reset();
        groups_.end();
    }
    Executor* evaluator() { return evaluator_.get(); } // null where nothing is evaluated
    // All the memory the device is asked for, in one piece: the chunks, then the scratch that the executors share.
    Bytes device_memory() const;
    std::byte* scratch_in(const Arena& memory) const;
    const MemoryTable& memory() const { return memory_; }
    // What it would be with another plan, all of whose model data is on the device; the kernels' workspace is taken to
    // be the same.
    MemoryTable memory_of(const Plan& plan) const;
    // Ranks that are threads share what libraries take. All ranks call it, before one of them allocates.
    void share_libraries();
    double flops_per_step() const;
    // The planner's, or that of model data which comes and goes; none where neither looked at a step.
    std::optional<Prediction> prediction() const;

  private:
    Model build(const Plan& plan) const; // of a micro-batch: of half of it where halves take turns
    void compile(const Model& model, TrainListener& listener);
    void compile_evaluation();
    void measure();
    Bytes room_of_groups() const;
    void plan_residences(TrainListener& listener);
    OffloadTiming& timing(DType compute, Bytes room, TrainListener& listener); // done once
    OffloadChoice offload_choice(const RunConfig& config, const Model& model, TrainListener& listener);
    Bytes chunk_memory() const; // of the device
    Bytes scratch() const;      // enough for either executor

    GroupTable groups_;
    FusionOptions fusion_;
    ModelSource source_;
    OpenedData data_;
    Plan plan_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<Device> own_host_;   // where the device's memory is not the host's
    const Device* host_ = nullptr;       // works on model data that is at home
    std::unique_ptr<DeviceLinks> links_; // null: exchanges go by way of the host
    std::vector<StoredTensor> stored_;
    std::optional<Logits> logits_;
    std::vector<Initialisation> initialisation_;
    std::optional<Compiled> compiled_;
    std::optional<Program> evaluation_;
    std::optional<OffloadPlan> offload_;
    bool has_weights_ = false;
    fs::path disk_;                      // or none
    const SpeedTable* speeds_ = nullptr; // null: timed here
    std::optional<OffloadTiming> timing_{};
    std::unique_ptr<Executor> executor_, evaluator_;
    MemoryTable memory_;
};

} // namespace tutti

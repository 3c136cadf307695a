// Offload: a run whose model data is more than its device may hold. Planned with the program, before anything is
// allocated; then the homes of chunks, and the residences that bring them to the device and back.
#pragma once

#include "backend/device.h"
#include "base/speed.h"
#include "memory/moments.h"
#include "runtime/homes.h"
#include "runtime/model_data.h"
#include "runtime/residence.h"

#include <functional>
#include <memory>
#include <optional>

namespace tutti {

struct OffloadLimits {
    Bytes device{}; // for chunks
    Bytes host{};   // for homes
    bool has_disk = false;
};

struct OffloadSpeed {
    std::function<double(const Instruction&)> seconds;
    LinkSpeed in{}, out{};
};

struct OffloadPlan {
    struct Part { // of training, of evaluation
        StepMoments step;
        ResidencyPlan residency;
    };
    Part training;
    std::optional<Part> evaluation{};
    HomePlan homes{};
    Bytes always{}; // at the start of the device memory: chunks that never leave it
    Bytes device{}; // memory for chunks
};

// Error where a moment needs more than the limits.
OffloadPlan plan_offload(const Program& training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed);

// How fast host memory is copied to the device and back.
OffloadSpeed measure_copies(const Device& device);

class Offload {
  public:
    // `chunks`: device memory of plan.device bytes. `disk`: a folder, where homes are on disk.
    Offload(const Device& device, const OffloadPlan& plan, std::byte* chunks, const fs::path& disk, int rank);

    const Homes& homes() const { return homes_; }
    void attach(ModelData& data); // made with these homes
    Residence* training() const { return training_.get(); }
    Residence* evaluation() const { return evaluation_.get(); }

  private:
    const Device* device_;
    const OffloadPlan* plan_;
    std::byte* chunks_;
    Homes homes_;
    std::unique_ptr<Residence> training_, evaluation_;
};

} // namespace tutti

// Offload: carries out the plans of offload_plan.h: the backing tiers of chunks, and the residences that bring chunks
// to the device and back, one for training and one for evaluation.
#pragma once

#include "backend/device.h"
#include "offload/execution/homes.h"
#include "offload/execution/model_data.h"
#include "offload/execution/residence.h"
#include "offload/offload_plan.h"

#include <memory>

namespace tutti::offload {

class Offload {
  public:
    // `chunks`: device memory of plan.device bytes. `disk`: a folder, where homes are on disk.
    Offload(const backend::Device& device, const OffloadPlan& plan, std::byte* chunks, const fs::path& disk);

    const Homes& homes() const { return homes_; }
    void attach(ModelData& data); // made with these homes
    Residence* training() const { return training_.get(); }
    Residence* evaluation() const { return evaluation_.get(); }

  private:
    const backend::Device* device_;
    const OffloadPlan* plan_;
    std::byte* chunks_;
    Homes homes_;
    std::unique_ptr<Residence> training_, evaluation_;
};

} // namespace tutti::offload

// Offload: carries out an OffloadPlan. It has the backing store of all chunks and two Residences that fetch and evict
// them, one for training and one for evaluation.
#pragma once

#include "backend/device.h"
#include "offload/execution/backing_store.h"
#include "offload/execution/model_data.h"
#include "offload/execution/residence.h"
#include "offload/offload_plan.h"

#include <memory>

namespace tutti::offload {

class Offload {
  public:
    // `chunks`: device memory of plan.device bytes. `disk`: a folder, if some chunks are backed by a disk.
    Offload(const backend::Device& device, const OffloadPlan& plan, std::byte* chunks, const fs::path& disk);

    const BackingStore& backing() const { return backing_; }
    void attach(ModelData& data); // made with this backing store
    Residence* training() const { return training_.get(); }
    Residence* evaluation() const { return evaluation_.get(); }

  private:
    const backend::Device* device_;
    const OffloadPlan* plan_;
    std::byte* chunks_;
    BackingStore backing_;
    std::unique_ptr<Residence> training_, evaluation_;
};

} // namespace tutti::offload

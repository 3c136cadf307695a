// RunMemory: the memory that a run takes: one arena on the device, the backing store of offloaded model data, and
// the model data in both. It is freed before the session is.
#pragma once

#include "offload/execution/offload.h"
#include "run/listener.h"
#include "train/session/session.h"

#include <memory>
#include <optional>

namespace tutti::train {

class RunMemory {
  public:
    RunMemory(Session& session, run::TrainListener& listener);

    offload::ModelData& data() { return *data_; }
    void bind_for_training(); // at the beginning, and whenever an evaluation has used the scratch
    std::byte* scratch() const { return session_.scratch_in(*arena_); }
    // Of model data that is fetched and evicted; null where all of it is always on the device.
    offload::Residence* training() const { return offload_ ? offload_->training() : nullptr; }
    offload::Residence* evaluation() const { return offload_ ? offload_->evaluation() : nullptr; }

  private:
    Session& session_;
    std::unique_ptr<backend::Arena> arena_;
    std::optional<offload::Offload> offload_;
    std::optional<offload::ModelData> data_;
};

// In use now: of the device, or of the process where the device's memory is the host's.
Bytes memory_in_use(const backend::Device& device);

} // namespace tutti::train

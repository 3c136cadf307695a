// OffloadTiming: times the speeds that residency plans depend on (offload/offload_plan.h): copies between host and
// device, the program's kernels, updates by the host, and a disk. All ranks time them at once, before anything else is
// allocated, and all get the same figures, so that ranks that update the same chunks decide alike.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "comm/group.h"
#include "offload/offload_speed.h"
#include "plan/plan.h"
#include "profiling/measuring_cost.h"

#include <optional>
#include <string>

namespace tutti::profiling {

class OffloadTiming {
  public:
    // Devices and world are kept by reference. Here and below, `room`: about the most that timing may take.
    // `table`: nothing is timed; null: everything is. `tell`: hears what is being timed.
    OffloadTiming(const backend::Device& device, const backend::Device& host, comm::World& world, DType compute,
                  Bytes room, const offload::SpeedTable* table = nullptr,
                  std::function<void(const std::string&)> tell = {});

    double flops() const { return costs_.profile().speed.flops; } // of a large matmul, per second
    double copied_bytes() const;                                  // per second, by the slower of both ways
    // For plans of this program. Is to outlive them.
    offload::OffloadSpeed of(const Program& program, const Precision& precision, Bytes room);
    // Adds how fast the disk with this folder is, where all ranks can write there. Else says why this one cannot.
    std::string time_disk(const fs::path& folder, Bytes room, offload::OffloadSpeed& speed);

  private:
    CopySpeed slowest(CopySpeed speed) const; // of all ranks
    CopySpeed time_copies(Bytes room) const;

    const backend::Device& device_;
    const backend::Device& host_;
    comm::World& world_;
    std::optional<offload::SpeedTable> table_;
    CopySpeed copies_;
    std::optional<CopySpeed> disk_{};
    std::string why_no_disk_{};
    std::optional<double> update_{}; // bytes of operands per second, by the host
    MeasuringCost costs_;
};

} // namespace tutti::profiling

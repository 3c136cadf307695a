// OffloadTiming: how fast a machine does what a residency plan weighs (offload.h): copies between host and device, the
// kernels of the program, updates that the host does, and a disk. Timed before anything else is allocated, by every
// rank of the world at once. All get the same, so that ranks that update the same chunks decide alike.
#pragma once

#include "backend/device.h"
#include "base/file.h"
#include "base/speed.h"
#include "comm/group.h"
#include "memory/moments.h"
#include "plan/plan.h"
#include "train/measuring_cost.h"

#include <optional>
#include <string>

namespace tutti {

// What OffloadTiming would time, given instead: decisions then follow from this table and not from the machine.
struct SpeedTable {
    KernelSpeed kernels{};
    CopySpeed host{};
    CopySpeed disk{};      // of any folder
    double updates = 1e10; // by the host: bytes of operands per second
};

struct OffloadSpeed {
    InstructionSeconds seconds{}; // on its lane: the device's, or the host's
    CopySpeed host{};             // between host memory and device
    std::optional<CopySpeed> disk{};
    double updates = 0; // by the host: bytes of operands per second
};

class OffloadTiming {
  public:
    // Devices and world are kept by reference. Here and below, `room`: about the most that timing may take.
    // `table`: nothing is timed; null: everything is.
    OffloadTiming(const Device& device, const Device& host, World& world, DType compute, Bytes room,
                  const SpeedTable* table = nullptr);

    double flops() const { return costs_.profile().speed.flops; } // of a large product, per second
    double copied_bytes() const;                                  // per second, by the slower of both ways
    // For plans of this program. Is to outlive them.
    OffloadSpeed of(const Program& program, const Precision& precision, Bytes room);
    // Adds how fast the disk with this folder is, where all ranks can write there. Else says why this one cannot.
    std::string time_disk(const fs::path& folder, Bytes room, OffloadSpeed& speed);

  private:
    CopySpeed slowest(CopySpeed speed) const; // of all ranks
    CopySpeed time_copies(Bytes room) const;

    const Device& device_;
    const Device& host_;
    World& world_;
    std::optional<SpeedTable> table_;
    CopySpeed copies_;
    std::optional<CopySpeed> disk_{};
    std::string why_no_disk_{};
    std::optional<double> update_{}; // bytes of operands per second, by the host
    MeasuringCost costs_;
};

} // namespace tutti

// The planner's model of offloading: how long a rank's step waits for copies when its model data is more than its
// device holds. It is the runtime's own residency planning, on blocks of the model instead of chunks.
#pragma once

#include "base/speed.h"
#include "base/units.h"

#include <optional>
#include <vector>

namespace tutti::planner {

struct OffloadedRank {
    struct Block {
        double weights = 0, gradients = 0; // bytes owned here
        bool over_weights = false;         // some gradients take none: they lie over the weights
        double states = 0;
        double forward = 0, backward = 0; // seconds of a micro-batch, with what is recomputed
    };
    struct Pass { // of a micro-batch through a stage
        int first = 0, end = 0;
        bool backward = false;
        bool operator==(const Pass&) const = default;
    };
    std::vector<Block> blocks{};
    std::vector<Pass> passes{}; // of a step, in their order
    double device = 0;          // bytes for model data: on the device,
    double host = 1e18;         // and in host memory
    LinkSpeed copy{};           // between host and device, either way
    double device_update = 0;   // bytes per second that the optimizer goes through: on the device,
    double host_update = 0;     // and on the host
};

struct OffloadCost {
    double seconds = 0;           // of a step,
    double exposed = 0;           // and those that it waits for copies
    double on_host = 0;           // bytes of host memory
    double copied = 0;            // bytes of a step, both ways together
    double host_update_share = 0; // share of the model that the host updates
};

// Nothing if the device has no room for one block at a time, or host memory has none for any plan.
std::optional<OffloadCost> offload_cost(const OffloadedRank& rank);

} // namespace tutti::planner

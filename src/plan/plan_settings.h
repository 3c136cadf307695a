// PlanSettings: the settings that a run may ask for and that its plan decides, in the same words. RunConfig and Plan
// both derive from it. So each of them is declared once, asking for them is `plan.settings() = config.settings()`, and
// following a plan is the same assignment the other way.
#pragma once

#include "base/dtype.h"
#include "base/units.h"
#include "offload/policy.h"
#include "plan/zero.h"

#include <cstdint>
#include <string>

namespace tutti {

struct Workload {
    std::int64_t sequence = 0;
    std::int64_t global_batch = 0; // sequences per step
    std::int64_t micro_batch = 0;  // sequences per forward

    bool operator==(const Workload&) const = default;
};

struct Precision {
    DType compute = DType::float32;   // weights and activations
    DType gradients = DType::float32; // of parameters, as they are accumulated
    DType master = DType::float32;    // weights as the optimizer keeps them: a copy of its own where wider than compute
    DType moments = DType::float32;   // of AdamW

    bool has_master() const { return size_of(compute) < size_of(master); }
    // Weight, gradient, moments, master.
    std::int64_t bytes_per_parameter() const {
        return size_of(compute) + size_of(gradients) + 2 * size_of(moments) + (has_master() ? size_of(master) : 0);
    }
    // Weights without a master and moments are rounded stochastically where they are 16-bit.
    bool rounds_weights() const { return size_of(compute) == 2 && !has_master(); }
    bool rounds_moments() const { return size_of(moments) == 2; }
    bool operator==(const Precision&) const = default;
};

// Elements of a chunk by default: alone, few large ones are the fewest launches; replicas reduce chunk by chunk while
// the backward goes on.
constexpr std::int64_t large_chunk = std::int64_t{256} << 20;
constexpr std::int64_t small_chunk = std::int64_t{4} << 20;

struct PlanSettings {
    Workload workload; // of a run's config: 0 is left open
    Precision precision;
    std::int64_t chunk_elements = large_chunk;
    bool split_backward = false; // weight gradients as tasks of their own, after the input gradients
    std::string device = "cpu";  // cpu, cuda or reference
    Zero zero{};                 // over the data axis: 1 shards optimizer states, 2 gradients, 3 weights (FSDP)
    // Device memory for model data and everything else; 0: all there is. Model data beyond it is offloaded: fetched and
    // evicted as the step needs it.
    Bytes device_memory{};
    Bytes host_memory{};
    offload::OptimizerPlacement optimizer_placement = offload::OptimizerPlacement::automatic;
    // The eviction rule, and whether chunks are prefetched; other than the default for comparisons only.
    offload::Eviction eviction = offload::Eviction::farthest_use;
    bool prefetch = true;
    offload::UpdateTime updates = offload::UpdateTime::automatic;
    // Gradients as narrow as weights lie over them where that is proved to be safe (program/over_weights.h).
    bool gradients_over_weights = true;
    bool sequence_parallel = true; // on the tensor axis, what lies between split operators is split by sequence
    bool sub_pipeline = false;     // micro-batch halves: the collectives of one overlap with the other's computation

    PlanSettings& settings() { return *this; }
    const PlanSettings& settings() const { return *this; }
    bool operator==(const PlanSettings&) const = default;
};

} // namespace tutti

// The memory table of a run, known before any memory is taken.
#pragma once

#include "base/units.h"

#include <string>
#include <vector>

namespace tutti::run {

struct MemoryRow {
    const char* name;
    Bytes bytes;
    std::string what;
};

// What the first step adds to a process beside our arenas: thread stacks, code that is read in when it first runs.
constexpr Bytes first_step_growth{std::int64_t{2} << 20};

struct MemoryTable {
    Bytes weights, gradients, master, moments, activations, buffers, workspace;
    // Beside our arena. Of the host: code, kernels, thread stacks. Of a GPU: what is taken already, by the context and
    // libraries of this program and by others.
    Bytes libraries;
    Bytes over_weights; // gradients that take no memory of their own
    // With offloading: the memory of model data on the device, and of its backing tiers.
    bool limited = false;
    Bytes on_device, on_host, on_disk;
    Bytes offloaded; // activations that are offloaded with it
    Bytes limit;     // that was set for the arena (--device-memory); 0: none
    Bytes capacity;  // of a device with memory of its own; 0 where it is the host's

    Bytes model_data() const { return weights + gradients + master + moments; }
    // Of the device.
    Bytes arena() const { return (limited ? on_device : model_data()) + activations + buffers + workspace; }
    // Of the device; if that is the host, with the backing places in host memory.
    Bytes total() const { return arena() + libraries + (capacity.count == 0 ? on_host : Bytes{}); }
    bool fits() const { return capacity.count == 0 || total() <= capacity; }

    std::vector<MemoryRow> rows() const; // with the total, and what is left where the capacity is known
    std::string sentence() const;        // "weights 2.10 GiB, gradients ..., workspace 1.50 GiB"
};

} // namespace tutti::run

// Plan: every decision that turns a model into a Program, as a value and a file. Flags only build one by hand; compile/
// has no other input. On one rank it is the workload, the precision of every state and how model data is chunked.
#pragma once

#include "base/dtype.h"

#include <cstdint>
#include <string>

namespace tutti {

struct Workload {
    std::int64_t sequence = 0;
    std::int64_t global_batch = 0; // sequences per step
    std::int64_t micro_batch = 0;  // sequences per forward

    std::int64_t micro_batches() const { return global_batch / micro_batch; }
    bool operator==(const Workload&) const = default;
};

struct Precision {
    DType compute = DType::float32; // weights and activations
    DType states = DType::float32;  // gradients, moments, and master weights where compute is narrower

    bool has_master() const { return size_of(compute) < size_of(states); }
    bool operator==(const Precision&) const = default;
};

struct Plan {
    static constexpr int version = 1;

    std::string model; // architecture, for people
    Workload workload;
    Precision precision;
    std::int64_t chunk_elements = std::int64_t{16} << 20;
    bool split_backward = false; // weight gradients as tasks of their own, after the input gradients
    std::string device = "cpu";

    bool operator==(const Plan&) const = default;
};

// Error where the numbers do not fit together, saying which would.
void check(const Plan& plan);

std::string to_json(const Plan& plan);
Plan parse_plan(const std::string& text, const std::string& file); // Error naming the file and the key

} // namespace tutti

// Profiles the machine for the planner, with all ranks at work: the kernels of a model for every width of the tensor
// axis and every micro-batch, collectives, messages, copies, and how they slow each other down.
#pragma once

#include "backend/device.h"
#include "comm/group.h"
#include "costs/profile.h"

#include <functional>
#include <string>
#include <vector>

namespace tutti::profiling {

struct ProfileConfig {
    std::string model = "gpt2-tiny"; // empty: no kernels are timed
    std::string device = "cpu";
    int threads = 0; // of a rank
    DType dtype = DType::float32;
    std::int64_t sequence = 0;                  // 0: what the model was made for, at most 1024
    std::vector<std::int64_t> micro_batches{1}; // sequences
    std::vector<int> widths{};                  // of the tensor axis; empty: all that divide the ranks
    Seconds lasting{0.02};                      // for each kernel
};

// What a profile of this device has to say of its machine. `version`: of the program.
costs::Fingerprint fingerprint_of(const backend::Device& device, int threads, const std::string& version);

// What is being done, on rank 0.
struct ProfileListener {
    std::function<void(const std::string&)> begins;  // a part of it
    std::function<void(const std::string&)> goes_on; // how far it is, a few times a second
};

// On every rank of the world; all get the same. Widths that the model cannot be split by are left out where they were
// not asked for.
costs::CostProfile measure_profile(const ProfileConfig& config, comm::World& world, const std::string& version,
                                   const ProfileListener& listener);

} // namespace tutti::profiling

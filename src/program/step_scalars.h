// StepScalars: everything that changes from step to step and is no tensor. Kernels read it through a pointer, so that a
// compiled Program never changes; on a GPU it lives in device memory.
#pragma once

#include <cstdint>

namespace tutti {

struct StepScalars {
    std::int64_t step = 0;         // counts from 0
    std::int64_t first_sample = 0; // global number of the first sample of the step
    std::uint64_t seed = 0;

    // Whether this rank wants to stop; after the step, how many do
    double stop = 0;

    // Loss and gradient
    double inverse_tokens = 1; // 1 / targets that count, over the whole global batch
    double loss_scale = 1;
    double max_norm = 0; // clip above this; 0: never

    // AdamW
    double learning_rate = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;

    // Results of the step, written by its kernels
    double loss = 0;          // mean over the counted targets
    double gradient_norm = 0; // before clipping
    double clip_factor = 1;
    std::int64_t finite = 1; // 0: loss or norm is not finite, and Update changes nothing
};

} // namespace tutti

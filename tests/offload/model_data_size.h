// How many bytes the model data of a program takes, counted from its chunks.
#pragma once

#include "program/program.h"

namespace tutti {

// With bf16 weights: 2 bytes of weights, 4 of gradients, master weights and each time point.
inline Bytes model_data(const Program& program) {
    std::int64_t elements = 0;
    for (std::int64_t chunk : program.chunk_elements) elements += chunk;
    return {18 * elements};
}

} // namespace tutti

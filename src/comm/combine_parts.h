// Combines the parts of all ranks into one result, always in rank order, so that every rank and every transport gets
// the same bits. 16-bit floats are added up in float32 and rounded once; NaN wins every maximum; booleans are joined by
// "or".
#pragma once

#include "base/combine.h"
#include "base/dtype.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::comm {

// `bytes` of every part, combined into `result`, which may be one of the parts.
void combine_parts(std::span<const std::byte* const> parts, std::byte* result, std::int64_t bytes, DType dtype,
                   Combine combine);

} // namespace tutti::comm

// The formats and the arithmetic in plain loops, which say what the others compute.
#include "backend/cpu/tiles/tiles.h"

#include <algorithm>

namespace tutti::backend::cpu::tiles {
namespace {

// Element `k` of a line.
BFloat16 element(const Source& source, std::int64_t line, std::int64_t k) {
    if (line >= source.lines || k >= source.depth) return {};
    return source.data[source.along_depth ? line * source.stride + k : k * source.stride + line];
}

void pack_left(const Source& source, BFloat16* packed) {
    for (std::int64_t k = 0; k < source.depth; k += step)
        for (std::int64_t line = 0; line < panel; ++line)
            for (std::int64_t i = 0; i < step; ++i) *packed++ = element(source, line, k + i);
}

void pack_right(const Source& source, BFloat16* packed) {
    for (std::int64_t k = 0; k < source.depth; k += step)
        for (std::int64_t first = 0; first < panel; first += 16)
            for (std::int64_t pair = 0; pair < step; pair += 2)
                for (std::int64_t line = first; line < first + 16; ++line)
                    for (std::int64_t i = 0; i < 2; ++i) *packed++ = element(source, line, k + pair + i);
}

void multiply(const BFloat16* left, const BFloat16* right, std::int64_t steps, float* block) {
    std::fill_n(block, panel * panel, 0.0f);
    for (std::int64_t s = 0; s < steps; ++s, left += 2 * tile, right += 2 * tile)
        for (std::int64_t row = 0; row < panel; ++row)
            for (std::int64_t column = 0; column < panel; ++column) {
                const BFloat16* a = left + row * step;
                const BFloat16* b = right + column / 16 * tile + column % 16 * 2;
                float& sum = block[row * panel + column];
                for (std::int64_t k = 0; k < step; ++k)
                    sum += static_cast<float>(a[k]) * static_cast<float>(b[k / 2 * step + k % 2]);
            }
}

void finish(const float* block, const Target& to) {
    for (std::int64_t row = 0; row < to.rows; ++row)
        for (std::int64_t column = 0; column < to.columns; ++column) {
            const std::int64_t at = row * to.out_stride + column;
            auto* const wide = static_cast<float*>(to.out) + at;
            auto* const narrow = static_cast<BFloat16*>(to.out) + at;
            float sum = block[row * panel + column];
            if (to.partial) sum += to.partial[row * to.partial_stride + column];
            if (to.bias) sum += static_cast<float>(to.bias[column]);
            if (to.accumulate) sum += to.narrow ? static_cast<float>(*narrow) : *wide;
            if (to.narrow)
                *narrow = BFloat16(sum);
            else
                *wide = sum;
        }
}

void nothing() {}

} // namespace

const Arithmetic& plain() {
    static constexpr Arithmetic arithmetic = {"plain", nothing, nothing, pack_left, pack_right, multiply, finish};
    return arithmetic;
}

} // namespace tutti::backend::cpu::tiles

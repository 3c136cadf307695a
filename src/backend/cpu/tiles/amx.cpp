// Tiles multiplied by AMX: four of the block's in registers, two of each operand loaded for every step.
#include "backend/cpu/tiles/avx512.h"

#include <immintrin.h>

namespace tutti::backend::cpu::tiles {
namespace {

struct alignas(64) TileConfiguration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

void begin() {
    static constexpr TileConfiguration configuration;
    _tile_loadconfig(&configuration);
}

void end() { _tile_release(); }

void multiply(const BFloat16* left, const BFloat16* right, std::int64_t steps, float* block) {
    constexpr int line = 64, block_line = panel * sizeof(float); // bytes
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (std::int64_t s = 0; s < steps; ++s, left += 2 * tile, right += 2 * tile) {
        _tile_loadd(6, right, line);
        _tile_loadd(4, left, line);
        _tile_loadd(7, right + tile, line);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, left + tile, line);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, block, block_line);
    _tile_stored(1, block + 16, block_line);
    _tile_stored(2, block + 16 * panel, block_line);
    _tile_stored(3, block + 16 * panel + 16, block_line);
}

} // namespace

const Arithmetic& amx() {
    static constexpr Arithmetic arithmetic = {"amx",    begin,         end, avx512::pack_left, avx512::pack_right,
                                              multiply, avx512::finish};
    return arithmetic;
}

} // namespace tutti::backend::cpu::tiles

#include "backend/cpu/tiles/avx512.h"

#include <immintrin.h>

#include <algorithm>

namespace tutti::backend::cpu::tiles::avx512 {
namespace {

__mmask32 first(std::int64_t count) {
    return count >= 32 ? ~__mmask32{0} : count <= 0 ? __mmask32{0} : (__mmask32{1} << count) - 1;
}

// 32 elements, zeros from `count` on.
__m512i load(const BFloat16* from, std::int64_t count) { return _mm512_maskz_loadu_epi16(first(count), from); }

// rows[i] lane j becomes rows[j] lane i, of 32 bits.
void transpose(__m512i (&rows)[16]) {
    __m512i pairs[16], fours[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int half = 0; half < 2; ++half) {
            fours[i + 2 * half] = _mm512_unpacklo_epi64(pairs[i + half], pairs[i + 2 + half]);
            fours[i + 2 * half + 1] = _mm512_unpackhi_epi64(pairs[i + half], pairs[i + 2 + half]);
        }
    // fours[4 g + c], quarter q: column 4 q + c of rows 4 g .. 4 g + 3
    for (int c = 0; c < 4; ++c) {
        const __m512i low01 = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0x44);
        const __m512i low23 = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0x44);
        const __m512i high01 = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0xee);
        const __m512i high23 = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0xee);
        rows[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        rows[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        rows[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        rows[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
}

// Lines across the depth: lane j of low[p] is the pair of line j at k + 2 p, of high[p] that of line 16 + j.
void load_pairs(const Source& source, std::int64_t k, __m512i (&low)[16], __m512i (&high)[16]) {
    alignas(64) static constexpr std::uint16_t low_places[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                                 37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                                 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i to_low = _mm512_load_si512(low_places);
    const __m512i to_high = _mm512_add_epi16(to_low, _mm512_set1_epi16(16));
    for (int p = 0; p < 16; ++p) {
        const std::int64_t even = k + 2 * p, odd = even + 1;
        const __m512i a =
            even < source.depth ? load(source.data + even * source.stride, source.lines) : _mm512_setzero_si512();
        const __m512i b =
            odd < source.depth ? load(source.data + odd * source.stride, source.lines) : _mm512_setzero_si512();
        low[p] = _mm512_permutex2var_epi16(a, to_low, b);
        high[p] = _mm512_permutex2var_epi16(a, to_high, b);
    }
}

// Lines along the depth: lane p of lines[i] is the pair of line `first_line + i` at k + 2 p.
void load_lines(const Source& source, std::int64_t first_line, std::int64_t k, __m512i (&lines)[16]) {
    for (int i = 0; i < 16; ++i)
        lines[i] = first_line + i < source.lines
                       ? load(source.data + (first_line + i) * source.stride + k, source.depth - k)
                       : _mm512_setzero_si512();
}

void store(const __m512i (&lines)[16], BFloat16* to) {
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * step, lines[i]);
}

// Both packings are one: where pairs of a tile lie as the operand wants its lines, they are stored, else transposed.
template <bool lines_are_wanted>
void pack(const Source& source, BFloat16* packed) {
    __m512i low[16], high[16];
    for (std::int64_t k = 0; k < source.depth; k += step, packed += 2 * tile) {
        if (source.along_depth) {
            load_lines(source, 0, k, low);
            load_lines(source, 16, k, high);
        } else {
            load_pairs(source, k, low, high);
        }
        if (source.along_depth != lines_are_wanted) {
            transpose(low);
            transpose(high);
        }
        store(low, packed);
        store(high, packed + tile);
    }
}

// To the nearest, as BFloat16 does.
__m256i narrow(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16));
}

__m512 widen(__m256i value) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(value), 16)); }

} // namespace

void pack_left(const Source& source, BFloat16* packed) { pack<true>(source, packed); }
void pack_right(const Source& source, BFloat16* packed) { pack<false>(source, packed); }

void finish(const float* block, const Target& to) {
    for (std::int64_t row = 0; row < to.rows; ++row)
        for (std::int64_t column = 0; column < to.columns; column += 16) {
            const auto here = static_cast<__mmask16>(first(std::min<std::int64_t>(to.columns - column, 16)));
            __m512 sum = _mm512_loadu_ps(block + row * panel + column);
            if (to.partial)
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(here, to.partial + row * to.partial_stride + column));
            if (to.bias) sum = _mm512_add_ps(sum, widen(_mm256_maskz_loadu_epi16(here, to.bias + column)));
            const std::int64_t at = row * to.out_stride + column;
            if (to.narrow) {
                auto* const out = static_cast<BFloat16*>(to.out) + at;
                if (to.accumulate) sum = _mm512_add_ps(sum, widen(_mm256_maskz_loadu_epi16(here, out)));
                _mm256_mask_storeu_epi16(out, here, narrow(sum));
            } else {
                auto* const out = static_cast<float*>(to.out) + at;
                if (to.accumulate) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(here, out));
                _mm512_mask_storeu_ps(out, here, sum);
            }
        }
}

} // namespace tutti::backend::cpu::tiles::avx512

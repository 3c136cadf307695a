// Pairs of bf16 multiplied and added by vdpbf16ps: 8 rows by 32 columns of the block stay in registers.
#include "backend/cpu/tiles/avx512.h"

#include <immintrin.h>

#include <cstring>

namespace tutti::backend::cpu::tiles {
namespace {

template <class To, class From>
[[gnu::always_inline]] inline To same_bits(const From& from) {
    To to;
    static_assert(sizeof to == sizeof from);
    std::memcpy(&to, &from, sizeof to);
    return to;
}

__m512bh pairs_of_line(const BFloat16* line) { return same_bits<__m512bh>(_mm512_loadu_si512(line)); }

__m512bh one_pair(const BFloat16* pair) {
    int bits = 0;
    std::memcpy(&bits, pair, sizeof bits);
    return same_bits<__m512bh>(_mm512_set1_epi32(bits));
}

void multiply(const BFloat16* left, const BFloat16* right, std::int64_t steps, float* block) {
    constexpr int rows = 8;
    for (int row = 0; row < panel; row += rows) {
        __m512 sums[rows][2];
        for (auto& of_row : sums) of_row[0] = of_row[1] = _mm512_setzero_ps();
        const BFloat16 *a = left + row * step, *b = right;
        for (std::int64_t s = 0; s < steps; ++s, a += 2 * tile, b += 2 * tile)
            for (int pair = 0; pair < 16; ++pair) {
                const __m512bh b0 = pairs_of_line(b + pair * step), b1 = pairs_of_line(b + tile + pair * step);
                for (int i = 0; i < rows; ++i) {
                    const __m512bh ai = one_pair(a + i * step + 2 * pair);
                    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], ai, b0);
                    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], ai, b1);
                }
            }
        for (int i = 0; i < rows; ++i)
            for (int half = 0; half < 2; ++half) _mm512_storeu_ps(block + (row + i) * panel + 16 * half, sums[i][half]);
    }
}

void nothing() {}

} // namespace

const Arithmetic& avx512_bf16() {
    static constexpr Arithmetic arithmetic = {"avx512_bf16",      nothing,  nothing,       avx512::pack_left,
                                              avx512::pack_right, multiply, avx512::finish};
    return arithmetic;
}

} // namespace tutti::backend::cpu::tiles

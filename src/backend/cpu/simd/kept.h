// What dropout multiplies elements with, drawn for a strip of Philox counters at a time so that the ten rounds are
// vector code. The draws are those of base/philox.h.
#pragma once

#include "backend/cpu/simd/parts.h"

namespace tutti::cpu::TUTTI_ISA {

// kept[w][i]: for element 4 block_of(i) + w of the stream, 0 where it falls, else how.scale.
template <int strip, class BlockOf>
TUTTI_INLINE void draw_kept(const DropoutRow& how, BlockOf block_of, float (&kept)[4][strip]) {
    std::uint32_t c0[strip], c1[strip], c2[strip], c3[strip];
    for (int i = 0; i < strip; ++i) {
        const std::uint64_t block = block_of(i);
        c0[i] = static_cast<std::uint32_t>(block);
        c1[i] = static_cast<std::uint32_t>(block >> 32);
        c2[i] = static_cast<std::uint32_t>(how.stream);
        c3[i] = static_cast<std::uint32_t>(how.stream >> 32);
    }
    std::uint32_t low = how.key.low, high = how.key.high;
    for (int round = 0; round < 10; ++round) {
#pragma omp simd
        for (int i = 0; i < strip; ++i) {
            const std::uint64_t product0 = 0xD2511F53ull * c0[i], product1 = 0xCD9E8D57ull * c2[i];
            c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[i] ^ low;
            c1[i] = static_cast<std::uint32_t>(product1);
            c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[i] ^ high;
            c3[i] = static_cast<std::uint32_t>(product0);
        }
        low += 0x9E3779B9;
        high += 0xBB67AE85;
    }
    const std::uint32_t threshold = how.threshold;
    const float scale = how.scale;
#pragma omp simd
    for (int i = 0; i < strip; ++i) {
        kept[0][i] = (c0[i] >> 8) >= threshold ? scale : 0.0f;
        kept[1][i] = (c1[i] >> 8) >= threshold ? scale : 0.0f;
        kept[2][i] = (c2[i] >> 8) >= threshold ? scale : 0.0f;
        kept[3][i] = (c3[i] >> 8) >= threshold ? scale : 0.0f;
    }
}

} // namespace tutti::cpu::TUTTI_ISA

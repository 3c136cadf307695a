// Random words, drawn for a strip of Philox counters at a time so that the ten rounds are vector code, and what dropout
// makes of them. The draws are those of base/philox.h.
#pragma once

#include "backend/cpu/simd/parts.h"

namespace tutti::backend::cpu::TUTTI_ISA {

// words[w][i]: word w at the counter block_of(i) of the stream.
template <int strip, class BlockOf>
TUTTI_INLINE void draw_words(PhiloxKey key, std::uint64_t stream, BlockOf block_of, std::uint32_t (&words)[4][strip]) {
    std::uint32_t(&c0)[strip] = words[0], (&c1)[strip] = words[1], (&c2)[strip] = words[2], (&c3)[strip] = words[3];
    for (int i = 0; i < strip; ++i) {
        const std::uint64_t block = block_of(i);
        c0[i] = static_cast<std::uint32_t>(block);
        c1[i] = static_cast<std::uint32_t>(block >> 32);
        c2[i] = static_cast<std::uint32_t>(stream);
        c3[i] = static_cast<std::uint32_t>(stream >> 32);
    }
    std::uint32_t low = key.low, high = key.high;
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
}

// kept[w][i]: for element 4 block_of(i) + w of the stream, 0 where it falls, else how.scale.
template <int strip, class BlockOf>
TUTTI_INLINE void draw_kept(const DropoutRow& how, BlockOf block_of, float (&kept)[4][strip]) {
    std::uint32_t words[4][strip];
    draw_words<strip>(how.key, how.stream, block_of, words);
    const std::uint32_t threshold = how.threshold;
    const float scale = how.scale;
    for (int word = 0; word < 4; ++word) {
#pragma omp simd
        for (int i = 0; i < strip; ++i) kept[word][i] = (words[word][i] >> 8) >= threshold ? scale : 0.0f;
    }
}

} // namespace tutti::backend::cpu::TUTTI_ISA

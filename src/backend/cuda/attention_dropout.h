// Which probabilities of a warp's sums dropout keeps. A draw of Philox has four words, those of four neighbouring keys
// of one query, which lie in several lanes: each lane draws its share of all fours, and the lanes tell each other the
// outcome, a bit for each element.
//
//   a word of bits, for eight sums of 16 x 8:    byte 3     byte 2     byte 1     byte 0
//                                               76543210   76543210   76543210   76543210
//                                element i of a sum is in byte i, the number of the sum is the bit
//
// so that a permutation of bytes makes masks for whole elements of them, from the bit that is shifted to the top.
#pragma once

#include "backend/cuda/attention_mma.h"
#include "backend/cuda/attention_view.h"

namespace tutti::backend::cuda {

// Draws for `count` fours at a time.
template <int count>
class PhiloxFours {
  public:
    __device__ PhiloxFours(const AttentionDropout& dropout, std::int64_t b)
        : key_(key_of(*dropout.scalars)), stream_(dropout.stream(b)), threshold_(dropout.threshold),
          straddles_(dropout.whole_keys % 4 != 0 || dropout.first_key % 4 != 0) {}

    // kept[i] = 2 kept[i] + (whether the i-th of four neighbours is kept), for fours from the last to the first.
    __device__ void append(const std::uint64_t (&elements)[count], std::uint32_t (&kept)[4]) const {
        std::uint32_t words[count][4];
        draw(elements, 0, words);
        if (straddles_) { // fours that do not begin at a multiple of four share two draws
            std::uint32_t next[count][4];
            draw(elements, 1, next);
#pragma unroll
            for (int n = 0; n < count; ++n) {
                const auto skipped = static_cast<int>(elements[n] % 4);
                std::uint32_t w[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    w[i] = 0;
#pragma unroll
                    for (int from = i; from < i + 4; ++from)
                        if (skipped == from - i) w[i] = from < 4 ? words[n][from] : next[n][from - 4];
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) words[n][i] = w[i];
            }
        }
#pragma unroll
        for (int n = count - 1; n >= 0; --n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                // The carry of word - threshold is whether the word is not less.
                asm("{.reg .u32 rest; add.cc.u32 rest, %1, %2; addc.u32 %0, %0, %0;}"
                    : "+r"(kept[i])
                    : "r"(words[n][i]), "r"(0u - threshold_));
    }

  private:
    // base/philox.h, with the keys of the rounds computed once for all.
    __device__ void draw(const std::uint64_t (&elements)[count], std::uint64_t blocks_on,
                         std::uint32_t (&words)[count][4]) const {
#pragma unroll
        for (int n = 0; n < count; ++n) {
            const std::uint64_t block = elements[n] / 4 + blocks_on;
            words[n][0] = static_cast<std::uint32_t>(block), words[n][1] = static_cast<std::uint32_t>(block >> 32);
            words[n][2] = static_cast<std::uint32_t>(stream_);
            words[n][3] = static_cast<std::uint32_t>(stream_ >> 32);
        }
        PhiloxKey key = key_;
#pragma unroll
        for (int round = 0; round < 10; ++round) {
#pragma unroll
            for (int n = 0; n < count; ++n) {
                std::uint32_t(&w)[4] = words[n];
                const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * w[0];
                const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * w[2];
                const std::uint32_t first = static_cast<std::uint32_t>(product1 >> 32) ^ w[1] ^ key.low;
                const std::uint32_t third = static_cast<std::uint32_t>(product0 >> 32) ^ w[3] ^ key.high;
                w[0] = first, w[1] = static_cast<std::uint32_t>(product1);
                w[2] = third, w[3] = static_cast<std::uint32_t>(product0);
            }
            key.low += 0x9E3779B9, key.high += 0xBB67AE85;
        }
    }

    PhiloxKey key_;
    std::uint64_t stream_;
    std::uint32_t threshold_;
    bool straddles_;
};

// Each byte of the result is the top bit, eight times, of the byte of `x` that a digit of the selector, less 8, names.
__device__ inline std::uint32_t spread_top_bits(std::uint32_t x, std::uint32_t selector) {
    std::uint32_t spread;
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(spread) : "r"(x), "r"(selector)); // __byte_perm has no such digits
    return spread;
}

// For sums [m_tiles][n_tiles] of 16 x 8. Made by all lanes of a warp.
template <int m_tiles, int n_tiles>
class KeptBits {
  public:
    static constexpr int tiles = m_tiles * n_tiles, words = (tiles + 7) / 8;

    // Queries in rows, keys in columns. A four of a row belongs to two lanes, t = 2u and 2u + 1: the first of them
    // draws that of row g, the second that of row g + 8.
    __device__ void draw_by_queries(const AttentionCall& call, std::int64_t b, int h, int first_query, int first_key) {
        const int lane = lane_of_warp(), odd = lane & 1;
        const std::uint64_t corner =
            call.dropout.element(h, first_query + lane / 4 + 8 * odd, first_key + lane % 4 / 2 * 4);
        draw(call.dropout, b, corner, static_cast<std::uint64_t>(16 * call.dropout.whole_keys), 8);
#pragma unroll
        for (int w = 0; w < words; ++w) exchange(w, 1, odd ? 0x3276 : 0x5410);
    }
    // Keys in rows, queries in columns. A four of a column belongs to four lanes, g = 4u to 4u + 3: each draws for one
    // of the columns 2t and 2t + 1 and of the rows 4u and 4u + 8; then bytes are transposed among the four.
    __device__ void draw_by_keys(const AttentionCall& call, std::int64_t b, int h, int first_query, int first_key) {
        const int lane = lane_of_warp(), g = lane / 4, q = g & 3;
        const std::uint64_t corner =
            call.dropout.element(h, first_query + lane % 4 * 2 + (q & 1), first_key + g / 4 * 4 + q / 2 * 8);
        draw(call.dropout, b, corner, 16, static_cast<std::uint64_t>(8 * call.dropout.whole_keys));
#pragma unroll
        for (int w = 0; w < words; ++w) {
            exchange(w, 8, q & 2 ? 0x3276 : 0x5410);
            exchange(w, 4, q & 1 ? 0x3715 : 0x6240);
        }
    }

    // All bits of element i of a sum, if it is kept.
    __device__ std::uint32_t mask(int m, int n, int i) const {
        return spread_top_bits(on_top(m, n), 0x8888 + 0x1111 * i);
    }
    // The same of elements 2r and 2r + 1, rounded to a pair of bf16.
    __device__ std::uint32_t pair_mask(int m, int n, int r) const {
        return spread_top_bits(on_top(m, n), r == 0 ? 0x9988 : 0xbbaa);
    }

  private:
    static constexpr int at_once = tiles % 4 == 0 ? 4 : 2;

    // The bit of a sum at the top of each byte.
    __device__ std::uint32_t on_top(int m, int n) const {
        const int tile = m * n_tiles + n;
        return bits_[tile / 8] << (7 - tile % 8);
    }
    // Some bytes for some of another lane's: selectors below 4 are of this lane's.
    __device__ void exchange(int w, int distance, int selector) {
        const std::uint32_t other = __shfl_xor_sync(0xffffffffu, bits_[w], distance);
        bits_[w] = __byte_perm(bits_[w], other, selector);
    }

    __device__ void draw(const AttentionDropout& dropout, std::int64_t b, std::uint64_t corner, std::uint64_t m_step,
                         std::uint64_t n_step) {
        const PhiloxFours<at_once> fours(dropout, b);
#pragma unroll
        for (int w = 0; w < words; ++w) {
            constexpr int in_word = tiles < 8 ? tiles : 8;
            std::uint32_t kept[4] = {};
#pragma unroll 1
            for (int i = in_word - at_once; i >= 0; i -= at_once) {
                std::uint64_t elements[at_once];
#pragma unroll
                for (int n = 0; n < at_once; ++n) {
                    const int tile = 8 * w + i + n;
                    elements[n] = corner + static_cast<std::uint64_t>(tile / n_tiles) * m_step +
                                  static_cast<std::uint64_t>(tile % n_tiles) * n_step;
                }
                fours.append(elements, kept);
            }
            bits_[w] = kept[0] | kept[1] << 8 | kept[2] << 16 | kept[3] << 24;
        }
    }

    std::uint32_t bits_[words];
};

} // namespace tutti::backend::cuda

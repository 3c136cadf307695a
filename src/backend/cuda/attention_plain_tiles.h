// What the plain kernels of attention have in common: a square tile of scores, made and used by 16 x 16 threads in
// float32.
//
//             keys: thread x has `per` neighbours               Tiles of q, k, v and dout are [tile, pitch] floats in
//           +-----+-----+--                                     shared memory. The threads of a half-warp read rows of
//   queries | x=0 | x=1 |     thread y has `per` neighbours     k and v that are `per` apart; so that these lie in
//           | y=0 | y=0 |                                       different banks, k and v are stored in the order of
//           +-----+-----+--                                     place_of.
#pragma once

#include "backend/cuda/attention_request.h"
#include "backend/cuda/attention_view.h"
#include "backend/cuda/rows.h"

#include <cmath>

namespace tutti::backend::cuda {

constexpr int attention_side = 16, attention_threads = attention_side * attention_side;
constexpr int most_attention_head = 256;
constexpr float infinity = __builtin_inff();

// Head sizes up to most_head; larger heads leave room for smaller tiles only.
template <int most_head>
struct AttentionTile {
    static constexpr int per = most_head <= 128 ? 4 : 2, size = attention_side * per;
    static constexpr int score_pitch = size + 4;
    static constexpr int groups = most_head / (4 * attention_side); // of four columns that a thread has of a head
    // Row i of k and v.
    __device__ static constexpr int place_of(int i) { return i % per * attention_side + i / per; }
};

inline int largest_head(const AttentionCall& a) { return std::max(a.head, a.value_head); }

// Calls body.template operator()<most_head>().
template <class Body>
void for_head(int head, Body body) {
    if (head <= 64) return body.template operator()<64>();
    if (head <= 128) return body.template operator()<128>();
    return body.template operator()<most_attention_head>();
}

__host__ __device__ constexpr int padded(int width) { return (width + 3) / 4 * 4; }
__host__ __device__ constexpr int pitch_of(int width) { return padded(width) + 4; }

__device__ inline int thread_x() { return static_cast<int>(threadIdx.x) % attention_side; }
__device__ inline int thread_y() { return static_cast<int>(threadIdx.x) / attention_side; }

// Rows [0, count) from `from` on, as floats; zeros in the rows beyond and in the columns up to a multiple of four.
template <class Tile, bool placed, class T>
__device__ void load_tile(const T* from, std::int64_t stride, int count, int width, bool packs, float* to) {
    const int pitch = pitch_of(width);
    auto row_of = [](int i) { return placed ? Tile::place_of(i) : i; };
    if (packs) {
        constexpr int size = Pack<T>::size;
        const int across = width / size;
        for (int n = static_cast<int>(threadIdx.x); n < Tile::size * across; n += attention_threads) {
            const int i = n / across, first = (n - i * across) * size;
            float values[size] = {};
            if (i < count) {
                const Pack<T> pack = load_pack(from + i * stride + first);
                for (int e = 0; e < size; ++e) values[e] = to_float(pack.element[e]);
            }
            for (int e = 0; e < size; e += 4)
                *reinterpret_cast<float4*>(to + row_of(i) * pitch + first + e) = {values[e], values[e + 1],
                                                                                  values[e + 2], values[e + 3]};
        }
    } else {
        const int across = padded(width);
        for (int n = static_cast<int>(threadIdx.x); n < Tile::size * across; n += attention_threads) {
            const int i = n / across, c = n - i * across;
            to[row_of(i) * pitch + c] = i < count && c < width ? to_float(from[i * stride + c]) : 0.0f;
        }
    }
}

// A thread's part of a b': rows of a (queries) times rows of b (keys, placed).
template <class Tile>
__device__ void multiply(const float* a, const float* b, int width, float (&product)[Tile::per][Tile::per]) {
    const int pitch = pitch_of(width);
    a += thread_y() * Tile::per * pitch;
    b += thread_x() * pitch;
    for (int r = 0; r < Tile::per; ++r)
        for (int c = 0; c < Tile::per; ++c) product[r][c] = 0;
    for (int l = 0; l < padded(width); l += 4) {
        float4 x[Tile::per], y[Tile::per];
#pragma unroll
        for (int r = 0; r < Tile::per; ++r) x[r] = *reinterpret_cast<const float4*>(a + r * pitch + l);
#pragma unroll
        for (int c = 0; c < Tile::per; ++c) y[c] = *reinterpret_cast<const float4*>(b + c * attention_side * pitch + l);
#pragma unroll
        for (int r = 0; r < Tile::per; ++r)
#pragma unroll
            for (int c = 0; c < Tile::per; ++c) {
                product[r][c] = fmaf(x[r].x, y[c].x, product[r][c]);
                product[r][c] = fmaf(x[r].y, y[c].y, product[r][c]);
                product[r][c] = fmaf(x[r].z, y[c].z, product[r][c]);
                product[r][c] = fmaf(x[r].w, y[c].w, product[r][c]);
            }
    }
}

// A thread's columns of a row of heads: four from 4 x + 64 g on, for each g.
template <class Tile>
using HeadSums = float4[Tile::per][Tile::groups];

// sums += w b: rows of w [tile, score_pitch] (those of thread y) times b [tile, pitch].
template <class Tile, bool placed>
__device__ void accumulate(const float* w, const float* b, int width, HeadSums<Tile>& sums) {
    const int pitch = pitch_of(width), column = 4 * thread_x();
    w += thread_y() * Tile::per * Tile::score_pitch;
#pragma unroll 2
    for (int n = 0; n < Tile::size; n += 4) {
        float weights[Tile::per][4];
#pragma unroll
        for (int r = 0; r < Tile::per; ++r) {
            const float4 four = *reinterpret_cast<const float4*>(w + r * Tile::score_pitch + n);
            weights[r][0] = four.x, weights[r][1] = four.y, weights[r][2] = four.z, weights[r][3] = four.w;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float* row = b + (placed ? Tile::place_of(n + k) : n + k) * pitch + column;
#pragma unroll
            for (int g = 0; g < Tile::groups; ++g) {
                if (column + 64 * g >= padded(width)) continue;
                const float4 x = *reinterpret_cast<const float4*>(row + 64 * g);
#pragma unroll
                for (int r = 0; r < Tile::per; ++r) {
                    sums[r][g].x = fmaf(weights[r][k], x.x, sums[r][g].x);
                    sums[r][g].y = fmaf(weights[r][k], x.y, sums[r][g].y);
                    sums[r][g].z = fmaf(weights[r][k], x.z, sums[r][g].z);
                    sums[r][g].w = fmaf(weights[r][k], x.w, sums[r][g].w);
                }
            }
        }
    }
}

// Row r of the sums, times factor, to a row of the result.
template <class Tile, class T>
__device__ void store_row(const HeadSums<Tile>& sums, int r, float factor, int width, T* to) {
#pragma unroll
    for (int g = 0; g < Tile::groups; ++g) {
        const float4 four = sums[r][g];
        const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int column = 4 * thread_x() + 64 * g + k;
            if (column < width) to[column] = from_float<T>(values[k] * factor);
        }
    }
}

// Products to scores: scaled, capped, masked, -inf where a query does not see a key or there is none. `slopes`, where
// they are wanted, are those of the soft cap.
template <class Tile>
__device__ void finish_scores(const AttentionCall& a, std::int64_t b, int h, int first_query, int first_key,
                              float (&scores)[Tile::per][Tile::per], float (*slopes)[Tile::per] = nullptr) {
    const std::int64_t mask_at = a.mask.head_at(b, h), bias_at = a.bias.head_at(b, h);
#pragma unroll
    for (int r = 0; r < Tile::per; ++r) {
        const int i = first_query + thread_y() * Tile::per + r;
        const KeyRange seen = i < a.queries ? a.seen_by(b, i) : KeyRange{};
#pragma unroll
        for (int c = 0; c < Tile::per; ++c) {
            const int j = first_key + thread_x() * Tile::per + c;
            if (slopes) slopes[r][c] = 1;
            if (j < seen.begin || j >= seen.end) {
                scores[r][c] = -infinity;
                continue;
            }
            scores[r][c] *= a.scale;
            if (a.soft_cap > 0) {
                const float capped = tanhf(scores[r][c] / a.soft_cap);
                scores[r][c] = a.soft_cap * capped;
                if (slopes) slopes[r][c] = 1 - capped * capped;
            }
            if (a.mask.data != nullptr) scores[r][c] += a.mask.at(mask_at, i, j);
            if (a.bias.data != nullptr) scores[r][c] += a.bias.at(bias_at, i, j);
        }
    }
}

// Which of a thread's probabilities dropout keeps: bit r per + c. Four neighbours share a draw.
template <class Tile>
__device__ unsigned draw_kept(const AttentionCall& a, std::int64_t b, int h, int first_query, int first_key) {
    if (!a.dropout.on) return ~0u;
    const PhiloxKey key = key_of(*a.dropout.scalars);
    const std::uint64_t stream = a.dropout.stream(b);
    unsigned kept = 0;
#pragma unroll
    for (int r = 0; r < Tile::per; ++r) {
        const std::uint64_t first =
            a.dropout.element(h, first_query + thread_y() * Tile::per + r, first_key + thread_x() * Tile::per);
        auto draw = [&](std::uint64_t block) {
            return philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
        };
        std::uint64_t block = first / 4;
        auto words = draw(block);
#pragma unroll
        for (int c = 0; c < Tile::per; ++c) {
            const std::uint64_t element = first + c;
            if (element / 4 != block) {
                block = element / 4;
                words = draw(block);
            }
            const auto word = static_cast<unsigned>(element % 4);
            const std::uint32_t bits = word < 2 ? (word == 0 ? words[0] : words[1]) : (word == 2 ? words[2] : words[3]);
            if (bits >= a.dropout.threshold) kept |= 1u << (r * Tile::per + c);
        }
    }
    return kept;
}

} // namespace tutti::backend::cuda

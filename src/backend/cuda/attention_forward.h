// Attention of a block of queries against the keys they see, a tile of keys at a time, in the manner of Flash Attention
// 2: a warp has whole rows of scores in registers, where they become probabilities and the left operand of the product
// with the values. P = 2^(S - running maximum), and what is already summed shrinks as the maximum grows.
#pragma once

#include "backend/cuda/attention_dropout.h"
#include "backend/cuda/attention_variants.h"

namespace tutti::backend::cuda {

// Sizes of the tiles for heads up to `head_size`: every warp has 16 m_tiles queries.
template <int head_size, int m_tiles_, int warps_, int keys_, int blocks_>
struct ForwardTile {
    static constexpr int head = head_size, m_tiles = m_tiles_, warps = warps_, threads = 32 * warps_;
    static constexpr int queries = 16 * m_tiles * warps, keys = keys_;
    static constexpr int blocks = blocks_; // that a multiprocessor is to have at a time
    static constexpr int shared_bytes = tile_bytes(queries + 2 * keys, head);
};

template <class Tile>
struct RunningSoftmax {
    static constexpr int m_tiles = Tile::m_tiles, n_tiles = Tile::keys / 8;
    float most[m_tiles][2], sum[m_tiles][2]; // of the rows g and g + 8; sums are this lane's part

    __device__ RunningSoftmax() {
#pragma unroll
        for (int m = 0; m < m_tiles; ++m)
#pragma unroll
            for (int r = 0; r < 2; ++r) most[m][r] = -__builtin_inff(), sum[m][r] = 0;
    }

    // Scores to probabilities; times `factor`, scores are in powers of two.
    template <int columns>
    __device__ void apply(Sum (&scores)[m_tiles][n_tiles], Sum (&out)[m_tiles][columns], float factor) {
#pragma unroll
        for (int m = 0; m < m_tiles; ++m)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float largest = most[m][r];
#pragma unroll
                for (int n = 0; n < n_tiles; ++n)
                    largest = fmaxf(largest, fmaxf(scores[m][n][2 * r], scores[m][n][2 * r + 1]));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                // Nothing seen yet: 2^(-inf - 0) = 0.
                const float base = largest == -__builtin_inff() ? 0.0f : largest * factor;
                const float shrink = exponential2(most[m][r] * factor - base);
                most[m][r] = largest;
                sum[m][r] *= shrink;
#pragma unroll
                for (int n = 0; n < columns; ++n) out[m][n][2 * r] *= shrink, out[m][n][2 * r + 1] *= shrink;
#pragma unroll
                for (int n = 0; n < n_tiles; ++n)
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; ++i) {
                        scores[m][n][i] = exponential2(fmaf(scores[m][n][i], factor, -base));
                        sum[m][r] += scores[m][n][i];
                    }
            }
    }
};

// Products to scores in powers of two, with soft cap, mask and bias; `first` are this lane's first query and key.
template <int m_tiles, int n_tiles>
__device__ void finish_scores(const AttentionCall& a, std::int64_t b, int h, int first_query, int first_key,
                              Sum (&scores)[m_tiles][n_tiles]) {
    const std::int64_t mask_at = a.mask.head_at(b, h), bias_at = a.bias.head_at(b, h);
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int i = min(first_query + 16 * m + e / 2 * 8, a.queries - 1);
                const int j = min(first_key + 8 * n + e % 2, a.keys - 1);
                float score = scores[m][n][e] * a.scale;
                if (a.soft_cap > 0) score = a.soft_cap * hyperbolic_tangent(score / a.soft_cap);
                if (a.mask.data != nullptr) score += a.mask.at(mask_at, i, j);
                if (a.bias.data != nullptr) score += a.bias.at(bias_at, i, j);
                scores[m][n][e] = score * log2_e;
            }
}

template <class Tile, AttentionExtras extras>
__global__ __launch_bounds__(Tile::threads, Tile::blocks) void attend(const __grid_constant__ AttentionCall a,
                                                                      const bf16* q, const bf16* k, const bf16* v,
                                                                      bf16* out, float* lse) {
    constexpr int head = Tile::head, m_tiles = Tile::m_tiles, n_tiles = Tile::keys / 8;
    constexpr bool scored = extras == AttentionExtras::all; // scores are finished before the softmax
    using Address = LaneAddress<head>;
    extern __shared__ __align__(16) bf16 shared[];
    bf16* const queries = shared;
    bf16* const keys = queries + Tile::queries * Address::pitch;
    bf16* const values = keys + Tile::keys * Address::pitch;

    const int blocks = (a.queries + Tile::queries - 1) / Tile::queries;
    const BlockOrder work(static_cast<int>(blockIdx.x), blocks, a.all_heads(), a.heads_at_once);
    const std::int64_t b = work.head / a.heads;
    const int h = work.head % a.heads, g = a.key_head_of(h);
    const int first_query = (blocks - 1 - work.block) * Tile::queries; // those with most keys first
    const BlockView view(a, b, first_query, Tile::queries);
    const KeyRange seen = view.blocks(Tile::keys);

    auto load_keys = [&](int block) {
        const int first = block * Tile::keys;
        load_tile<Tile::keys, head, Tile::threads>({k + a.k.at(b, first, g), a.k.row, a.keys - first, a.head, a.packs},
                                                   keys);
    };
    auto load_values = [&](int block) {
        const int first = block * Tile::keys;
        load_tile<Tile::keys, head, Tile::threads>(
            {v + a.v.at(b, first, g), a.v.row, a.keys - first, a.value_head, a.packs}, values);
    };
    load_tile<Tile::queries, head, Tile::threads>(
        {q + a.q.at(b, first_query, h), a.q.row, a.queries - first_query, a.head, a.packs}, queries);
    if (seen.begin < seen.end) load_keys(seen.begin);
    commit_copies();

    const int lane = lane_of_warp(), first_row = warp_of_block() * 16 * m_tiles;
    const std::uint32_t queries_at = Address::left(shared_address(queries)) + Address::step(first_row, 0);
    const std::uint32_t keys_at = Address::right(shared_address(keys));
    const std::uint32_t values_at = Address::right_by_depth(shared_address(values));
    const float factor = scored ? 1.0f : a.scale * log2_e;

    RunningSoftmax<Tile> softmax;
    Sum sums[m_tiles][head / 8];
    clear(sums);
    for (int block = seen.begin; block < seen.end; ++block) {
        const int first_key = block * Tile::keys;
        wait_for_copies<0>();
        __syncthreads(); // the keys are there, the last values are used up
        load_values(block);
        commit_copies();

        const bool drops = extras == AttentionExtras::dropout || (extras == AttentionExtras::all && a.dropout.on);
        KeptBits<m_tiles, n_tiles> kept;
        if (drops) kept.draw_by_queries(a, b, h, first_query + first_row, first_key);

        Sum scores[m_tiles][n_tiles];
        clear(scores);
        multiply_rows<head>(scores, queries_at, keys_at);
        if constexpr (scored)
            finish_scores(a, b, h, first_query + first_row + lane / 4, first_key + lane % 4 * 2, scores);
        if (!view.whole(first_key, Tile::keys)) {
#pragma unroll
            for (int m = 0; m < m_tiles; ++m)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const int i = first_query + first_row + 16 * m + 8 * r + lane / 4;
                    const KeyRange row = a.seen_by(b, min(i, a.queries - 1));
#pragma unroll
                    for (int n = 0; n < n_tiles; ++n)
#pragma unroll
                        for (int c = 0; c < 2; ++c) {
                            const int j = first_key + 8 * n + lane % 4 * 2 + c;
                            if (j < row.begin || j >= row.end) scores[m][n][2 * r + c] = -__builtin_inff();
                        }
                }
        }

        wait_for_copies<0>();
        __syncthreads(); // the values are there, the keys are used up
        if (block + 1 < seen.end) load_keys(block + 1);
        commit_copies();

        softmax.apply(scores, sums, factor);
        LeftFragment probabilities[m_tiles][n_tiles / 2];
        round_to_fragments(scores, probabilities);
        if (drops) {
#pragma unroll
            for (int m = 0; m < m_tiles; ++m)
#pragma unroll
                for (int n = 0; n < n_tiles; ++n)
#pragma unroll
                    for (int r = 0; r < 2; ++r) probabilities[m][n / 2][n % 2 * 2 + r] &= kept.pair_mask(m, n, r);
        }
        multiply_fragments<head>(sums, probabilities, values_at);
    }
    wait_for_copies<0>();

#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int i = first_query + first_row + 16 * m + 8 * r + lane / 4;
            float total = softmax.sum[m][r];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            if (i >= a.queries) continue;
            float most = softmax.most[m][r] * factor, shrink = 1;
            if (a.sinks != nullptr) { // one more score, of no value
                const float sink = a.sink(h) * log2_e, seen_most = total == 0 ? sink : most;
                most = fmaxf(seen_most, sink);
                shrink = exponential2(seen_most - most);
                total = total * shrink + exponential2(sink - most);
            }
            const float kept_scale = extras == AttentionExtras::none ? 1.0f : a.dropout.kept_scale;
            const float by = total == 0 ? 0.0f : shrink * kept_scale / total;
            bf16* const row = out + a.out.at(b, i, h);
#pragma unroll
            for (int n = 0; n < head / 8; ++n)
                store_pair(row, 8 * n + lane % 4 * 2, a.value_head, a.pairs, sums[m][n][2 * r] * by,
                           sums[m][n][2 * r + 1] * by);
            if (lane % 4 == 0)
                lse[(b * a.heads + h) * a.queries + i] = total == 0 ? -__builtin_inff() : (most + log2f(total)) * ln_2;
        }
}

template <class Tile>
ForwardVariant forward_variant() {
    return {{.head = Tile::head,
             .queries = Tile::queries,
             .keys = Tile::keys,
             .threads = Tile::threads,
             .shared_bytes = Tile::shared_bytes},
            {attend<Tile, AttentionExtras::none>, attend<Tile, AttentionExtras::dropout>,
             attend<Tile, AttentionExtras::all>}};
}

} // namespace tutti::backend::cuda

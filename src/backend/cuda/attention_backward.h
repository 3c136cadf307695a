// The gradient of attention, from the scores computed again:
//   p_ij = exp(s_ij - lse_i), ds_ij = p_ij (d_ij (do_i v_j) - do_i o_i), d_ij what dropout multiplies with;
//   dv_j = sum_i p_ij d_ij do_i;  dk_j = scale sum_i ds_ij q_i;  dq_i = scale sum_j ds_ij k_j
//
// A block has some keys and goes through the queries that see them, of all heads that the key head serves. Scores are
// kept transposed, keys in rows: a warp has whole rows in registers, where they are the left operands of the products
// for dv and dk. Only ds goes through shared memory, for dq.
//
// dq is a sum over blocks of keys, which are spread over the GPU. Its float32 sums lie in the workspace, and the blocks
// add to them in turns, so that they are always summed in the same order: the first stores, the last writes dq. Each
// warp waits for the same warp of the block before it, seldom: blocks start in the order of their turns and visit the
// queries in the same order.
//
//   forwards:   keys 0 first, queries from the last on      backwards: keys from the last on, queries from the first on
//               that see them: the longest blocks start                that sees them: with causal masks, blocks that
//               first, each one step behind the last                   start together never wait
//
// A block waits only for blocks that have started before it, since it takes its number when it starts.
#pragma once

#include "backend/cuda/attention_dropout.h"
#include "backend/cuda/attention_variants.h"

namespace tutti::backend::cuda {

enum class GradientPart { all, values, keys }; // which sums a kernel computes: dv; dk and dq; or all of them

// Sizes of the tiles for heads up to `head_size`: every warp has 16 m_tiles keys. Scores of `at_once` queries are in
// registers at a time.
template <int head_size, int m_tiles_, int warps_, int queries_, int at_once_, int stages_, int blocks_>
struct BackwardTile {
    static constexpr int head = head_size, m_tiles = m_tiles_, warps = warps_, threads = 32 * warps_;
    static constexpr int keys = 16 * m_tiles * warps, queries = queries_, at_once = at_once_;
    static constexpr int stages = stages_; // of tiles of queries in shared memory
    static constexpr int blocks = blocks_; // that a multiprocessor is to have at a time
    // The warps side by side in dq.
    static constexpr int dq_down = [] {
        int down = queries > 32 ? queries / 32 : 1;
        while (head % (16 * (warps / down)) != 0) down *= 2;
        return down;
    }();
    static constexpr int dq_rows = queries / dq_down, dq_columns = head / (warps / dq_down);
    static constexpr int shared_bytes = tile_bytes(2 * keys + 2 * stages * queries, head) + tile_bytes(keys, queries) +
                                        stages * queries * 2 * static_cast<int>(sizeof(float));
};

// Turns are told, and sums are added and read, in the cache that all multiprocessors share, one after the other.
__device__ inline int load_relaxed(const int* from) {
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline void store_relaxed(int* to, int value) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline void fence_on_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Without waiting for it to be done.
__device__ inline void add_in_memory(float* to, const Sum& x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
                 "f"(x[3])
                 : "memory");
#else
    for (int i = 0; i < 4; ++i)
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to + i), "f"(x[i]) : "memory");
#endif
}

// One warp's part of dq of a block of queries, where all blocks of keys add to it.
template <class Tile>
class SharedSum {
  public:
    static constexpr int m_tiles = Tile::dq_rows / 16, n_tiles = Tile::dq_columns / 8;
    using Sums = Sum[m_tiles][n_tiles];

    // Looks whose turn it is, so that `add` knows when it needs to.
    __device__ void look(const int* turns) { now_ = load_relaxed(turns); }
    // Adds at our turn, counted from 0. After the last turn the sums are complete in `sums`, and true is returned.
    __device__ bool add(float* partial, int* turns, int turn, bool last, Sums& sums) {
        while (now_ < turn) now_ = load_relaxed(turns);
        __syncwarp();
        float* const mine = partial + 4 * lane_of_warp();
        auto each = [&](auto body) {
#pragma unroll
            for (int m = 0; m < m_tiles; ++m)
#pragma unroll
                for (int n = 0; n < n_tiles; ++n) body(mine + (m * n_tiles + n) * 128, sums[m][n]);
        };
        if (turn == 0 && !last) {
            each([](float* at, const Sum& x) {
                __stcg(reinterpret_cast<float4*>(at), make_float4(x[0], x[1], x[2], x[3]));
            });
        } else if (!last) {
            each([](float* at, const Sum& x) { add_in_memory(at, x); });
        } else if (turn > 0) {
            each([](float* at, Sum& x) {
                const float4 before = __ldcg(reinterpret_cast<const float4*>(at));
                x[0] += before.x, x[1] += before.y, x[2] += before.z, x[3] += before.w;
            });
        }
        if (!last) waiting_ = turns, done_ = turn + 1;
        return last;
    }
    // Lets the next block have its turn. Some work after `add`, when the additions have arrived.
    __device__ void pass_on() {
        if (waiting_ == nullptr) return;
        fence_on_device();
        __syncwarp();
        if (lane_of_warp() == 0) store_relaxed(waiting_, done_);
        waiting_ = nullptr;
    }

  private:
    int* waiting_ = nullptr;
    int done_ = 0, now_ = 0;
};

// The blocks of queries that see any of the keys of a block, found by all threads of the block.
template <class Tile>
__device__ KeyRange queries_of_block(const AttentionCall& a, std::int64_t b, int key_block, int query_blocks) {
    __shared__ int first, last;
    if (threadIdx.x == 0) first = query_blocks, last = 0;
    __syncthreads();
    int least = query_blocks, most = 0;
    for (int m = static_cast<int>(threadIdx.x); m < query_blocks; m += Tile::threads) {
        const KeyRange keys = BlockView(a, b, m * Tile::queries, Tile::queries).blocks(Tile::keys);
        if (key_block >= keys.begin && key_block < keys.end) least = min(least, m), most = max(most, m + 1);
    }
    if (least < most) atomicMin(&first, least), atomicMax(&last, most);
    __syncthreads();
    return {first, last};
}

// Scores of keys that a query does not see become -inf; `first` are this lane's first query and key.
template <int m_tiles, int n_tiles>
__device__ void hide_unseen(const AttentionCall& a, std::int64_t b, int first_query, int first_key,
                            Sum (&scores)[m_tiles][n_tiles]) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const KeyRange seen = a.seen_by(b, min(first_query + 8 * n + c, a.queries - 1));
#pragma unroll
            for (int m = 0; m < m_tiles; ++m)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const int j = first_key + 16 * m + 8 * r;
                    if (j < seen.begin || j >= seen.end) scores[m][n][2 * r + c] = -__builtin_inff();
                }
        }
}

// Products of one sum to scores with soft cap, mask and bias, and the slopes of the soft cap.
__device__ inline void finish_scores(const AttentionCall& a, std::int64_t b, int h, int first_query, int first_key,
                                     Sum& scores, Sum& slopes) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int i = min(first_query + e % 2, a.queries - 1), j = min(first_key + e / 2 * 8, a.keys - 1);
        if (scores[e] == -__builtin_inff()) continue; // not seen
        scores[e] *= a.scale;
        if (a.soft_cap > 0) {
            const float capped = hyperbolic_tangent(scores[e] / a.soft_cap);
            scores[e] = a.soft_cap * capped;
            slopes[e] = 1 - capped * capped;
        }
        if (a.mask.data != nullptr) scores[e] += a.mask.at(a.mask.head_at(b, h), i, j);
        if (a.bias.data != nullptr) scores[e] += a.bias.at(a.bias.head_at(b, h), i, j);
    }
}

template <class Tile, AttentionExtras extras, GradientPart part>
__global__ __launch_bounds__(Tile::threads, Tile::blocks) void differentiate(const __grid_constant__ AttentionCall a,
                                                                             const __grid_constant__ BackwardData g) {
    constexpr int head = Tile::head, m_tiles = Tile::m_tiles, n_tiles = Tile::at_once / 8;
    constexpr bool for_values = part != GradientPart::keys, for_keys = part != GradientPart::values;
    using Address = LaneAddress<head>;
    using ScoreAddress = LaneAddress<Tile::queries>;
    extern __shared__ __align__(16) bf16 shared[];
    bf16* const keys = shared;
    bf16* const values = keys + Tile::keys * Address::pitch;
    bf16* const queries = values + Tile::keys * Address::pitch;                             // and dout, for each stage
    bf16* const scores_of_dq = queries + 2 * Tile::stages * Tile::queries * Address::pitch; // ds, keys in rows
    float* const statistics = reinterpret_cast<float*>(scores_of_dq + Tile::keys * ScoreAddress::pitch);

    __shared__ int number;
    if (threadIdx.x == 0) number = atomicAdd(g.next, 1);
    __syncthreads();
    const int key_blocks = (a.keys + Tile::keys - 1) / Tile::keys;
    const int query_blocks = (a.queries + Tile::queries - 1) / Tile::queries;
    const BlockOrder work(number, key_blocks, static_cast<int>(a.batch) * a.key_heads, a.heads_at_once);
    const int key_block = g.backwards ? key_blocks - 1 - work.block : work.block;
    const std::int64_t b = work.head / a.key_heads;
    const int key_head = work.head % a.key_heads, first_key = key_block * Tile::keys;
    const KeyRange seeing = queries_of_block<Tile>(a, b, key_block, query_blocks);

    load_tile<Tile::keys, head, Tile::threads>(
        {g.k + a.k.at(b, first_key, key_head), a.k.row, a.keys - first_key, a.head, a.packs}, keys);
    if constexpr (for_keys)
        load_tile<Tile::keys, head, Tile::threads>(
            {g.v + a.v.at(b, first_key, key_head), a.v.row, a.keys - first_key, a.value_head, a.packs}, values);

    // Steps through the queries, and through the heads that this key head serves.
    struct Step {
        int head, block;
        bool there;
    };
    const int last_head = (key_head + 1) * a.group();
    Step step{key_head * a.group(), g.backwards ? seeing.begin : seeing.end - 1, seeing.begin < seeing.end};
    auto visits = [&](int block) {
        const KeyRange visitors = BlockView(a, b, block * Tile::queries, Tile::queries).blocks(Tile::keys);
        return key_block >= visitors.begin && key_block < visitors.end;
    };
    auto next_of = [&](Step from) {
        do {
            from.block += g.backwards ? 1 : -1;
            if (from.block < seeing.begin || from.block >= seeing.end) {
                from.block = g.backwards ? seeing.begin : seeing.end - 1;
                from.there = ++from.head < last_head;
            }
        } while (from.there && a.documents != nullptr && !visits(from.block));
        return from;
    };
    auto load_queries = [&](Step of, int stage) {
        const int first = of.block * Tile::queries;
        bf16* const to = queries + 2 * stage * Tile::queries * Address::pitch;
        load_tile<Tile::queries, head, Tile::threads>(
            {g.q + a.q.at(b, first, of.head), a.q.row, a.queries - first, a.head, a.packs}, to);
        load_tile<Tile::queries, head, Tile::threads>({g.dout + g.dout_strides.at(b, first, of.head),
                                                       g.dout_strides.row, a.queries - first, a.value_head, a.packs},
                                                      to + Tile::queries * Address::pitch);
        constexpr int packs = Tile::queries / 4;
        const std::int64_t row = ((b * a.heads + of.head) * query_blocks + of.block) * Tile::queries;
        const std::uint32_t statistics_at = shared_address(statistics + 2 * stage * Tile::queries);
        const int pack = static_cast<int>(threadIdx.x);
        if (pack < 2 * packs)
            copy_pack(statistics_at + 16 * pack,
                      pack < packs ? g.lse + row + 4 * pack : g.row_sums + row + 4 * (pack - packs), true);
    };
    if (step.there) load_queries(step, 0);
    commit_copies();

    const int lane = lane_of_warp(), warp = warp_of_block(), first_row = warp * 16 * m_tiles;
    const std::uint32_t keys_at = Address::left(shared_address(keys)) + Address::step(first_row, 0);
    const std::uint32_t values_at = Address::left(shared_address(values)) + Address::step(first_row, 0);
    const std::uint32_t queries_at = shared_address(queries);
    const int dq_row = warp % Tile::dq_down * Tile::dq_rows, dq_column = warp / Tile::dq_down * Tile::dq_columns;
    const std::uint32_t dq_left =
        ScoreAddress::left_by_depth(shared_address(scores_of_dq)) + ScoreAddress::step(0, dq_row);
    const std::uint32_t dq_right = Address::right_by_depth(shared_address(keys)) + Address::step(0, dq_column);

    Sum dk[for_keys ? m_tiles : 1][for_keys ? head / 8 : 1], dv[for_values ? m_tiles : 1][for_values ? head / 8 : 1];
    clear(dk);
    clear(dv);
    SharedSum<Tile> shared_dq;
    int stage = 0;
    while (step.there) {
        const Step next = next_of(step);
        const int h = step.head, first_query = step.block * Tile::queries;
        const BlockView view(a, b, first_query, Tile::queries);
        const bool whole = view.whole(first_key, Tile::keys);
        wait_for_copies<0>();
        __syncthreads(); // the queries are there; those of the other stage, and ds, are used up
        if constexpr (Tile::stages == 2) {
            if (next.there) load_queries(next, stage ^ 1);
            commit_copies();
        }
        const std::uint32_t tile = queries_at + Address::step(2 * stage * Tile::queries, 0);
        const std::uint32_t dout_tile = tile + Address::step(Tile::queries, 0);
        const float* const lse = statistics + 2 * stage * Tile::queries;
        const float* const row_sums = lse + Tile::queries;

#pragma unroll 1
        for (int from = 0; from < Tile::queries; from += Tile::at_once) {
            const std::uint32_t rows = Address::step(from, 0);
            const bool drops = extras == AttentionExtras::dropout || (extras == AttentionExtras::all && a.dropout.on);
            KeptBits<m_tiles, n_tiles> kept;
            if (drops) kept.draw_by_keys(a, b, h, first_query + from, first_key + first_row);
            Sum scores[m_tiles][n_tiles], dp[m_tiles][n_tiles];
            clear(scores);
            clear(dp);
            multiply_rows<head>(scores, keys_at, Address::right(tile) + rows);
            if constexpr (for_keys) multiply_rows<head>(dp, values_at, Address::right(dout_tile) + rows);
            shared_dq.pass_on();
            if (!whole) hide_unseen(a, b, first_query + from + lane % 4 * 2, first_key + first_row + lane / 4, scores);

            // Scores to probabilities, times the slope of the soft cap; as dropout leaves them, a left operand.
            LeftFragment probabilities[m_tiles][n_tiles / 2];
            const float factor = a.scale * log2_e;
#pragma unroll
            for (int n = 0; n < n_tiles; ++n) {
                const int column = from + 8 * n + lane % 4 * 2;
                const float2 shift = *reinterpret_cast<const float2*>(lse + column);
#pragma unroll
                for (int m = 0; m < m_tiles; ++m) {
                    Sum p, slope = {1, 1, 1, 1};
                    if constexpr (extras == AttentionExtras::all)
                        finish_scores(a, b, h, first_query + column, first_key + first_row + 16 * m + lane / 4,
                                      scores[m][n], slope);
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        p[e] = exponential2(fmaf(scores[m][n][e], extras == AttentionExtras::all ? log2_e : factor,
                                                 e % 2 == 0 ? -shift.x : -shift.y));
                        scores[m][n][e] = p[e] * slope[e];
                    }
#pragma unroll
                    for (int r = 0; r < 2; ++r) {
                        std::uint32_t& pair = probabilities[m][n / 2][n % 2 * 2 + r];
                        pair = rounded_pair(p[2 * r], p[2 * r + 1]);
                        if (drops) pair &= kept.pair_mask(m, n, r);
                    }
                }
            }
            if constexpr (for_values)
                multiply_fragments<head>(dv, probabilities, Address::right_by_depth(dout_tile) + rows);

            if constexpr (for_keys) {
#pragma unroll
                for (int n = 0; n < n_tiles; ++n) {
                    const float2 minus = *reinterpret_cast<const float2*>(row_sums + from + 8 * n + lane % 4 * 2);
#pragma unroll
                    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            const float shift = e % 2 == 0 ? minus.x : minus.y;
                            float x = dp[m][n][e];
                            if (drops) {
                                x = __uint_as_float(__float_as_uint(x) & kept.mask(m, n, e));
                                scores[m][n][e] *= fmaf(x, a.dropout.kept_scale, -shift);
                            } else {
                                scores[m][n][e] *= x - shift;
                            }
                        }
                }
                LeftFragment ds[m_tiles][n_tiles / 2];
                round_to_fragments(scores, ds);
                store_fragments<Tile::queries>(ds, scores_of_dq, first_row, from);
                multiply_fragments<head>(dk, ds, Address::right_by_depth(tile) + rows);
            }
        }
        __syncthreads(); // ds is there, the queries are used up
        if constexpr (Tile::stages == 1) {
            if (next.there) load_queries(next, 0);
            commit_copies();
        } else {
            stage ^= 1;
        }

        if constexpr (for_keys) {
            const std::int64_t block = (b * a.heads + h) * query_blocks + step.block;
            int* const turns = g.turns + block * Tile::warps + warp;
            shared_dq.look(turns);
            typename SharedSum<Tile>::Sums dq;
            clear(dq);
            multiply_columns<Tile::keys, Tile::queries, head>(dq, dq_left, dq_right);
            const KeyRange visitors = view.blocks(Tile::keys);
            const int turn = g.backwards ? visitors.end - 1 - key_block : key_block - visitors.begin;
            const bool last = turn == visitors.end - visitors.begin - 1;
            float* const partial =
                g.partial_dq + block * (Tile::queries * head) + warp * (Tile::dq_rows * Tile::dq_columns);
            if (shared_dq.add(partial, turns, turn, last, dq))
                store_sums(dq, {g.dq + g.dq_strides.at(b, 0, h), g.dq_strides.row, a.queries, a.head, g.pairs},
                           first_query + dq_row, dq_column, a.scale);
        }
        step = next;
    }
    shared_dq.pass_on();
    wait_for_copies<0>();

    const float dv_scale = extras == AttentionExtras::none ? 1.0f : a.dropout.kept_scale;
    if constexpr (for_keys)
        store_sums(dk, {g.dk + g.dk_strides.at(b, 0, key_head), g.dk_strides.row, a.keys, a.head, g.pairs},
                   first_key + first_row, 0, a.scale);
    if constexpr (for_values)
        store_sums(dv, {g.dv + g.dv_strides.at(b, 0, key_head), g.dv_strides.row, a.keys, a.value_head, g.pairs},
                   first_key + first_row, 0, dv_scale);
}

// Sums of large heads do not fit into registers together: then dv has a kernel of its own.
template <class Tile, GradientPart part>
std::array<BackwardKernel, attention_extras> backward_kernels() {
    return {differentiate<Tile, AttentionExtras::none, part>, differentiate<Tile, AttentionExtras::dropout, part>,
            differentiate<Tile, AttentionExtras::all, part>};
}
template <class Tile>
BackwardVariant backward_variant() {
    BackwardVariant variant{{.head = Tile::head,
                             .queries = Tile::queries,
                             .keys = Tile::keys,
                             .threads = Tile::threads,
                             .shared_bytes = Tile::shared_bytes}};
    variant.warps = Tile::warps;
    if constexpr (Tile::head <= 128) {
        variant.kernels = backward_kernels<Tile, GradientPart::all>();
    } else {
        variant.first_kernels = backward_kernels<Tile, GradientPart::values>();
        variant.kernels = backward_kernels<Tile, GradientPart::keys>();
    }
    return variant;
}

} // namespace tutti::backend::cuda

// Tiles of bf16 in shared memory and matrix products of warps on them: mma.sync m16n8k16, ldmatrix, cp.async, all of
// them there from compute capability 8.0 on.
//
// A fragment of an operand or a sum is spread over the lanes of a warp; lane = 4 g + t:
//   a sum of 16 x 8: rows g and g + 8, columns 2t and 2t + 1:   c[0] c[1]  (row g)
//                                                               c[2] c[3]  (row g + 8)
//   so that two neighbouring sums, rounded, are the left operand of 16 x 16 of a next product.
// Rows of a tile have eight elements more than they need: then the eight rows that ldmatrix reads at a time lie in
// different banks, and all addresses are a constant behind one that a lane computes once.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace tutti::backend::cuda {

using bf16 = __nv_bfloat16;

using Sum = float[4];                    // of 16 x 8
using LeftFragment = std::uint32_t[4];   // 16 rows, 16 deep
using RightFragments = std::uint32_t[4]; // two neighbouring fragments, each 8 columns, 16 deep

constexpr int pitch_of_tile(int columns) { return columns + 8; }
constexpr int tile_bytes(int rows, int columns) { return rows * pitch_of_tile(columns) * 2; }

__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

__device__ inline void multiply_add(Sum& c, const LeftFragment& a, std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}
__device__ inline void load_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// Where a lane reads, of a tile that begins at `tile`. The operand is L [m, k] or R [k, n]; the tile's rows are named.
template <int columns>
struct LaneAddress {
    static constexpr int pitch = pitch_of_tile(columns);
    __device__ static std::uint32_t at(std::uint32_t tile, int row, int column) {
        return tile + static_cast<std::uint32_t>(2 * (row * pitch + column));
    }
    // L, tile of rows m: load_matrices.
    __device__ static std::uint32_t left(std::uint32_t tile) {
        const int lane = lane_of_warp();
        return at(tile, lane % 16, lane / 16 * 8);
    }
    // L, tile of rows k: load_transposed.
    __device__ static std::uint32_t left_by_depth(std::uint32_t tile) {
        const int lane = lane_of_warp();
        return at(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    }
    // R, tile of rows n: load_matrices.
    __device__ static std::uint32_t right(std::uint32_t tile) {
        const int lane = lane_of_warp();
        return at(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
    }
    // R, tile of rows k: load_transposed.
    __device__ static std::uint32_t right_by_depth(std::uint32_t tile) {
        const int lane = lane_of_warp();
        return at(tile, lane % 16, lane / 16 * 8);
    }
    // From one place of a tile to another, in bytes.
    __device__ static constexpr std::uint32_t step(int rows, int across) {
        return static_cast<std::uint32_t>(2 * (rows * pitch + across));
    }
};

template <int m_tiles, int n_tiles>
__device__ void clear(Sum (&sums)[m_tiles][n_tiles]) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
}

// sums += L R' for tiles of rows that are `depth` long: L at `left`, 16 m_tiles rows; R at `right`, 8 n_tiles rows.
template <int depth, int m_tiles, int n_tiles>
__device__ void multiply_rows(Sum (&sums)[m_tiles][n_tiles], std::uint32_t left, std::uint32_t right) {
    using Address = LaneAddress<depth>;
    static_assert(n_tiles % 2 == 0 && depth % 16 == 0);
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
        LeftFragment a[m_tiles];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) load_matrices(a[m], left + Address::step(16 * m, k));
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            RightFragments b;
            load_matrices(b, right + Address::step(8 * n, k));
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                multiply_add(sums[m][n], a[m], b[0], b[1]);
                multiply_add(sums[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// sums += L R for L in fragments, 16 deep each, and a tile R of rows k at `right`, `columns` wide.
template <int columns, int m_tiles, int k_tiles, int n_tiles>
__device__ void multiply_fragments(Sum (&sums)[m_tiles][n_tiles], const LeftFragment (&left)[m_tiles][k_tiles],
                                   std::uint32_t right) {
    using Address = LaneAddress<columns>;
    static_assert(n_tiles % 2 == 0);
#pragma unroll
    for (int k = 0; k < k_tiles; ++k)
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            RightFragments b;
            load_transposed(b, right + Address::step(16 * k, 8 * n));
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                multiply_add(sums[m][n], left[m][k], b[0], b[1]);
                multiply_add(sums[m][n + 1], left[m][k], b[2], b[3]);
            }
        }
}

// sums += L R for tiles of rows k: L at `left`, `left_columns` wide, and R at `right`.
template <int depth, int left_columns, int right_columns, int m_tiles, int n_tiles>
__device__ void multiply_columns(Sum (&sums)[m_tiles][n_tiles], std::uint32_t left, std::uint32_t right) {
    static_assert(n_tiles % 2 == 0 && depth % 16 == 0);
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
        LeftFragment a[m_tiles];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) load_transposed(a[m], left + LaneAddress<left_columns>::step(k, 16 * m));
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            RightFragments b;
            load_transposed(b, right + LaneAddress<right_columns>::step(k, 8 * n));
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                multiply_add(sums[m][n], a[m], b[0], b[1]);
                multiply_add(sums[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

__device__ inline std::uint32_t rounded_pair(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
}

// Sums as the left operand of a next product.
template <int m_tiles, int n_tiles>
__device__ void round_to_fragments(const Sum (&sums)[m_tiles][n_tiles], LeftFragment (&to)[m_tiles][n_tiles / 2]) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int k = 0; k < n_tiles / 2; ++k) {
            const Sum &first = sums[m][2 * k], &second = sums[m][2 * k + 1];
            to[m][k][0] = rounded_pair(first[0], first[1]);
            to[m][k][1] = rounded_pair(first[2], first[3]);
            to[m][k][2] = rounded_pair(second[0], second[1]);
            to[m][k][3] = rounded_pair(second[2], second[3]);
        }
}

// Sixteen bytes on their way to shared memory; zeros where not `there`.
__device__ inline void copy_pack(std::uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int under_way>
__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(under_way) : "memory");
}

// A matrix in device memory: rows of `width` elements, `stride` apart.
struct Rows {
    const bf16* data = nullptr;
    std::int64_t stride = 0;
    int count = 0, width = 0; // zeros beyond
    bool packs = false;       // every row begins at a multiple of 16 bytes and is a multiple of 8 long
};

// Its first rows to a tile: under way for packs, done otherwise.
template <int rows, int columns, int threads>
__device__ void load_tile(const Rows& from, bf16* tile) {
    constexpr int pitch = pitch_of_tile(columns), across = columns / 8;
    const int thread = static_cast<int>(threadIdx.x);
    if (!from.packs) {
        for (int n = thread; n < rows * columns; n += threads) {
            const int row = n / columns, column = n % columns;
            tile[row * pitch + column] = row < from.count && column < from.width ? from.data[row * from.stride + column]
                                                                                 : __float2bfloat16_rn(0.0f);
        }
        return;
    }
    const std::uint32_t to = shared_address(tile);
    if constexpr (threads % across == 0 && rows % (threads / across) == 0) {
        constexpr int at_once = threads / across;
        const int row = thread / across, column = thread % across * 8;
        const bool within = column < from.width;
        const bf16* source = from.data + row * from.stride + (within ? column : 0);
        const std::uint32_t target = to + static_cast<std::uint32_t>(2 * (row * pitch + column));
#pragma unroll
        for (int i = 0; i < rows / at_once; ++i) {
            const bool there = within && row + i * at_once < from.count;
            copy_pack(target + 2 * i * at_once * pitch, there ? source : from.data, there);
            source += at_once * from.stride;
        }
    } else {
#pragma unroll 4
        for (int n = thread; n < rows * across; n += threads) {
            const int row = n / across, column = n % across * 8;
            const bool there = row < from.count && column < from.width;
            copy_pack(to + static_cast<std::uint32_t>(2 * (row * pitch + column)),
                      there ? from.data + row * from.stride + column : from.data, there);
        }
    }
}

// Two neighbouring elements of a row.
__device__ inline void store_pair(bf16* row, int column, int width, bool pairs, float low, float high) {
    if (pairs) { // the width is even
        if (column < width) *reinterpret_cast<std::uint32_t*>(row + column) = rounded_pair(low, high);
    } else {
        if (column < width) row[column] = __float2bfloat16_rn(low);
        if (column + 1 < width) row[column + 1] = __float2bfloat16_rn(high);
    }
}

// A matrix of results in device memory.
struct ResultRows {
    bf16* data = nullptr;
    std::int64_t stride = 0;
    int count = 0, width = 0;
    bool pairs = false; // every row begins at a multiple of four bytes and is a multiple of 2 long
};

// Sums, times `scale`, from a row and a column on; what lies beyond the matrix is left out.
template <int m_tiles, int n_tiles>
__device__ void store_sums(const Sum (&sums)[m_tiles][n_tiles], const ResultRows& to, int first_row, int first_column,
                           float scale) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = first_row + 16 * m + 8 * r + lane / 4;
            if (row >= to.count) continue;
            bf16* const at = to.data + row * to.stride;
#pragma unroll
            for (int n = 0; n < n_tiles; ++n)
                store_pair(at, first_column + 8 * n + lane % 4 * 2, to.width, to.pairs, sums[m][n][2 * r] * scale,
                           sums[m][n][2 * r + 1] * scale);
        }
}

// Fragments to a tile, from its column on: as they lie in the sums that they were rounded from.
template <int columns, int m_tiles, int k_tiles>
__device__ void store_fragments(const LeftFragment (&fragments)[m_tiles][k_tiles], bf16* tile, int first_row,
                                int first_column) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int k = 0; k < k_tiles; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = first_row + 16 * m + i % 2 * 8 + lane / 4;
                const int column = first_column + 16 * k + i / 2 * 8 + lane % 4 * 2;
                *reinterpret_cast<std::uint32_t*>(tile + row * pitch_of_tile(columns) + column) = fragments[m][k][i];
            }
}

__device__ inline float exponential2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float hyperbolic_tangent(float x) {
    // Of exponentials, since tanh.approx has but eleven bits.
    const float e = exponential2(-2.8853900817779268f * fabsf(x));
    return copysignf(__fdividef(1 - e, 1 + e), x);
}

} // namespace tutti::backend::cuda

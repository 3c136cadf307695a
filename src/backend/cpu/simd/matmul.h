// Small matmuls for tiles that lie in the nearest caches: C [m,n] = or += A [m,k] B [k,n].
//
// Elements of A are broadcast, so A may have any strides; rows of B and C are contiguous. A block of 4 rows by a few
// vectors of C stays in registers while k runs.
#pragma once

#include "backend/cpu/simd/parts.h"

namespace tutti::backend::cpu::TUTTI_ISA {

#if defined(__AVX512F__)
constexpr int lanes = 16, strip_vectors = 4; // 16 of 32 registers hold C
#elif defined(__AVX__)
constexpr int lanes = 8, strip_vectors = 2; // 8 of 16
#else
constexpr int lanes = 4, strip_vectors = 2;
#endif

using Vector [[gnu::vector_size(lanes * sizeof(float)), gnu::aligned(alignof(float)), gnu::may_alias]] = float;

template <int n>
struct Constant {
    static constexpr int value = n;
};

struct Left {
    const float* data;
    std::int64_t row, step; // strides of m and k
};
struct Right {
    const float* data;
    std::int64_t row;
};
struct Matmul {
    float* data;
    std::int64_t row;
};

template <int rows, int vectors>
TUTTI_INLINE void multiply_block(std::int64_t depth, Left a, Right b, Matmul c, bool add) {
    Vector sum[rows][vectors];
    for (int i = 0; i < rows; ++i)
        for (int v = 0; v < vectors; ++v)
            sum[i][v] = add ? *reinterpret_cast<const Vector*>(c.data + i * c.row + v * lanes) : Vector{};
    for (std::int64_t l = 0; l < depth; ++l) {
        Vector right[vectors];
        for (int v = 0; v < vectors; ++v) right[v] = *reinterpret_cast<const Vector*>(b.data + l * b.row + v * lanes);
        for (int i = 0; i < rows; ++i) {
            const float left = a.data[i * a.row + l * a.step];
            for (int v = 0; v < vectors; ++v) sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int v = 0; v < vectors; ++v) *reinterpret_cast<Vector*>(c.data + i * c.row + v * lanes) = sum[i][v];
}

template <int vectors>
TUTTI_INLINE void multiply_strip(std::int64_t m, std::int64_t depth, Left a, Right b, Matmul c, bool add) {
    std::int64_t i = 0;
    for (; i + 4 <= m; i += 4)
        multiply_block<4, vectors>(depth, {a.data + i * a.row, a.row, a.step}, b, {c.data + i * c.row, c.row}, add);
    for (; i < m; ++i)
        multiply_block<1, vectors>(depth, {a.data + i * a.row, a.row, a.step}, b, {c.data + i * c.row, c.row}, add);
}

static inline void multiply(std::int64_t m, std::int64_t n, std::int64_t depth, Left a, Right b, Matmul c, bool add) {
    std::int64_t j = 0;
    auto strip_of = [&](auto vectors) [[gnu::always_inline]] {
        constexpr int count = decltype(vectors)::value;
        for (; j + count * lanes <= n; j += count * lanes)
            multiply_strip<count>(m, depth, a, {b.data + j, b.row}, {c.data + j, c.row}, add);
    };
    strip_of(Constant<strip_vectors>{});
    strip_of(Constant<1>{});
    for (; j < n; ++j) // what is left of a width that is no multiple of the vector
        for (std::int64_t i = 0; i < m; ++i) {
            float sum = add ? c.data[i * c.row + j] : 0.0f;
            for (std::int64_t l = 0; l < depth; ++l) sum += a.data[i * a.row + l * a.step] * b.data[l * b.row + j];
            c.data[i * c.row + j] = sum;
        }
}

} // namespace tutti::backend::cpu::TUTTI_ISA

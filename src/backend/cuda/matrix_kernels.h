// What matrix products need beside cuBLASLt: the product in layouts that it does not take, copies of matrices with
// extents that it has fast kernels for, sums of columns, and data to measure with.
#pragma once

#include "backend/cuda/cublas.h"

namespace tutti::backend::cuda {

// Any strides, any alignment; slow.
void launch_plain_matmul(cudaStream_t stream, const Matmul& matmul, const MatmulPointers& pointers);

constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b * b; }

// The next number of outputs that the library has fast kernels for. With an odd one, such as a vocabulary of 50257, all
// its matmuls take several times as long, however their rows are aligned.
constexpr std::int64_t padded_extent(std::int64_t outputs) { return round_up(outputs, 64); }

// to[i, j] = (to[i, j] +) from[i, j]. Rows of neighbouring elements, of the same type or of float32 to be rounded.
void launch_copy_rows(cudaStream_t stream, const Matrix& from, const void* data, const Matrix& to, void* to_data,
                      bool add = false);

// A dense copy with `rows` rows; those that `from` does not have are zero.
void launch_padded_copy(cudaStream_t stream, const Matrix& from, const void* data, std::int64_t rows, void* to);

// sums[j] = (sums[j] +) the sum over i of x[i * row_stride + j], always in the same order.
void launch_column_sums(cudaStream_t stream, DType dtype, const void* x, std::int64_t rows, std::int64_t columns,
                        std::int64_t row_stride, bool add, DType sum_dtype, void* sums);

// Uniform in [-1, 1).
void launch_random_values(cudaStream_t stream, DType dtype, void* x, std::int64_t count);

} // namespace tutti::backend::cuda

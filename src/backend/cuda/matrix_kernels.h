// What matrix products need beside cuBLASLt: the product in layouts that it does not take, sums of columns, and data to
// measure with.
#pragma once

#include "backend/cuda/cublas.h"

namespace tutti::cuda {

// Any strides, any alignment; slow.
void launch_plain_product(cudaStream_t stream, const Product& product, const ProductPointers& pointers);

// sums[j] = (sums[j] +) the sum over i of x[i * row_stride + j], always in the same order.
void launch_column_sums(cudaStream_t stream, DType dtype, const void* x, std::int64_t rows, std::int64_t columns,
                        std::int64_t row_stride, bool add, float* sums);

// Uniform in [-1, 1).
void launch_random_values(cudaStream_t stream, DType dtype, void* x, std::int64_t count);

} // namespace tutti::cuda

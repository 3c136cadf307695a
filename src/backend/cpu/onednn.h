// Matmuls by oneDNN: operands as they lie in memory, primitives made once.
#pragma once

#include "backend/device.h"

#include <dnnl.hpp>

#include <memory>
#include <vector>

namespace tutti::backend::cpu {

// oneDNN's engine and stream, and what it must be told before its first use.
class Onednn {
  public:
    Onednn();

    dnnl::engine engine;
    dnnl::stream stream;
    bool has_bf16 = false; // matmuls of it
};

// A matrix as it lies in memory. Strides are in elements.
struct Matrix {
    DType dtype = DType::float32;
    std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 0;

    Matrix transposed() const { return {dtype, columns, rows, column_stride, row_stride}; }
    bool by_rows() const { return column_stride == 1; }
};

// How many matmuls of the same shape, and how far apart their operands lie.
struct Batch {
    std::int64_t count = 1, left = 0, right = 0, out = 0;
};

// out = left right (+ bias) (+ out). Operands are inputs of the kernel, by number; out is its output 0.
struct Matmul {
    Matrix left, right, out;
    std::size_t left_input = 0, right_input = 1;
    bool has_bias = false; // input 2, a row
    bool accumulate = false;
    bool pack_right = false;       // copy it to the layout that oneDNN likes best first
    Batch batch = {};              // in one call
    std::vector<Batch> outer = {}; // one call for each of these: batch dimensions that do not join
};

// Runs by our own tiles where they compute it, which is faster; else by the primitive or, where that is slow, by
// oneDNN's older routine; in float32 on CPUs without bf16 matmuls.
std::unique_ptr<Kernel> make_matmul(std::shared_ptr<Onednn> onednn, const Matmul& matmul);

bool prefers_gemm(const Matmul& matmul);
std::unique_ptr<Kernel> make_gemm(const Matmul& matmul);
// Of bf16 operands, by a matmul of float32.
std::unique_ptr<Kernel> make_widened(const std::shared_ptr<Onednn>& onednn, const Matmul& matmul);

} // namespace tutti::backend::cpu

// Matrix products by cuBLASLt: operands as they lie in memory, descriptors and algorithm chosen once.
//
// Only algorithms whose sums have a fixed order are used, in float32 arithmetic. Which of them is the fastest is
// measured and kept in a file (tuning_cache.h), so that every run on a machine takes the same.
#pragma once

#include "backend/cuda/cuda.h"
#include "backend/cuda/tuning_cache.h"

#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

// A matrix as it lies in memory. Strides are in elements.
struct Matrix {
    DType dtype = DType::float32;
    std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 0;

    Matrix transposed() const { return {dtype, columns, rows, column_stride, row_stride}; }
};

// All dimensions but the last as rows; the operand collapses to a matrix (Accepts::matrix).
Matrix matrix_of(const Operand& operand);

// How many matmuls of the same shape, and how far apart their operands lie.
struct Batch {
    std::int64_t count = 1, left = 0, right = 0, out = 0;
};

// out = left right (+ bias) (+ addend)
struct Matmul {
    Matrix left, right, out;
    bool has_bias = false;             // a row of out's type
    std::optional<Matrix> addend = {}; // `out` itself where a matmul is added to what is there
    Batch batch = {};                  // without an addend
};

struct MatmulPointers {
    const void *left = nullptr, *right = nullptr, *bias = nullptr, *addend = nullptr;
    void* out = nullptr;
};

// The product in the library's terms: D = op(A) op(B) + C, all by columns.
struct MatmulDescriptors {
    cublasLtMatmulDescOpaque_t operation{};
    cublasLtMatrixLayoutOpaque_t a{}, b{}, c{}, d{};
};

struct MatmulAlignment { // in bytes
    std::uint32_t a = 16, b = 16, c = 16, d = 16, bias = 16;
};

struct CublasHandle {
    CublasHandle();
    ~CublasHandle();
    CublasHandle(const CublasHandle&) = delete;
    CublasHandle& operator=(const CublasHandle&) = delete;

    cublasLtHandle_t get = nullptr;
};

// A product ready to be run. Where cuBLASLt does not take its layouts, a plain kernel does it.
class PreparedMatmul {
  public:
    void run(cudaStream_t stream, const MatmulPointers& pointers, std::byte* workspace) const;

  private:
    friend class Cublas;
    bool is_aligned(const MatmulPointers& pointers) const;
    cublasStatus_t run_with(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream, const MatmulPointers& pointers,
                            std::byte* workspace) const;

    std::shared_ptr<const CublasHandle> handle_;
    Matmul matmul_;
    bool swapped_ = false; // out lies by rows: what is computed is its transpose, A is `right` and B is `left`
    MatmulDescriptors descriptors_;
    MatmulAlignment alignment_;
    // For operands aligned as stated, and for operands that begin anywhere.
    std::optional<cublasLtMatmulAlgo_t> aligned_, unaligned_;
};

class Cublas {
  public:
    static constexpr Bytes workspace{32 << 20}; // of every matmul

    explicit Cublas(const Gpu& gpu);
    // The same one where the same product was prepared before.
    std::shared_ptr<const PreparedMatmul> prepare(const Matmul& matmul);

    // By the product in words: algorithms that were measured, here or in the run that the file is of.
    std::map<std::string, std::string> timed_choices() const;
    // Of a plan: they hold before those of the file.
    void follow_timed_choices(const std::map<std::string, std::string>& choices);

  private:
    std::optional<cublasLtMatmulAlgo_t> choose(const PreparedMatmul& matmul, const std::string& description);
    std::size_t measure(const PreparedMatmul& matmul, const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                        double& microseconds) const;

    std::shared_ptr<const CublasHandle> handle_;
    std::int64_t l2_bytes_;
    TuningCache cache_;
    mutable std::mutex mutex_;
    std::map<std::string, std::string> chosen_, given_; // algorithms in hexadecimal
    // By description and whether out lies by rows: then it is the same call, but of operands in the other order.
    std::map<std::pair<std::string, bool>, std::shared_ptr<const PreparedMatmul>> prepared_;
};

} // namespace tutti::backend::cuda

#include "backend/cuda/cublas.h"

#include "backend/cuda/matrix_kernels.h"
#include "base/error.h"

#include <algorithm>
#include <bit>

namespace tutti::backend::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail_world("{}: cuBLASLt says {} ({})", what, cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

template <class Value>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), "describing a matmul");
}
template <class Value>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, const Value& value) {
    check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), "describing a matrix");
}
template <class Value>
void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value), "asking for algorithms");
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F; }

// Whether the elements of a row or those of a column are neighbours, and how far apart the rows or columns are.
struct Leading {
    bool by_rows;
    std::int64_t distance;
};
std::optional<Leading> leading_of(const Matrix& m) {
    if (m.columns == 1 || m.column_stride == 1) {
        const std::int64_t distance = m.rows == 1 ? m.columns : m.row_stride;
        if (distance >= m.columns) return Leading{true, distance};
    } else if (m.rows == 1 || m.row_stride == 1) {
        if (m.column_stride >= m.rows) return Leading{false, m.column_stride};
    }
    return std::nullopt; // rows on top of each other, or gaps everywhere
}

bool fits_cublas(const Matmul& p) {
    const auto out = leading_of(p.out);
    if (!leading_of(p.left) || !leading_of(p.right) || !out) return false;
    if (p.has_bias && !out->by_rows) return false;
    if (!p.addend) return true;
    const auto addend = leading_of(*p.addend);
    return addend && addend->by_rows == out->by_rows && p.batch.count == 1;
}

// An operand of the library's product, which knows matrices by columns only: one by rows is stored as its transpose.
struct LibraryMatrix {
    DType dtype = DType::float32;
    std::int64_t rows = 0, columns = 0, leading = 0; // as stored
    cublasOperation_t operation = CUBLAS_OP_N;
    std::int64_t batch_stride = 0;

    // For the product of the transposes where `swapped`.
    LibraryMatrix(const Matrix& m, bool swapped, std::int64_t batch) : dtype(m.dtype), batch_stride(batch) {
        const auto [by_rows, distance] = *leading_of(m);
        rows = by_rows ? m.columns : m.rows;
        columns = by_rows ? m.rows : m.columns;
        leading = distance;
        operation = by_rows == swapped ? CUBLAS_OP_N : CUBLAS_OP_T;
    }

    cublasLtMatrixLayoutOpaque_t layout(std::int64_t batches) const {
        cublasLtMatrixLayoutOpaque_t layout{};
        check(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), leading),
              "describing a matrix");
        if (batches > 1) {
            set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batches));
            set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
        }
        return layout;
    }

    // What all columns have if the first one has it, in bytes; at most 16.
    std::uint32_t alignment() const {
        const auto steps = static_cast<std::uint64_t>((leading | batch_stride) * size_of(dtype)) | 16;
        return 1u << std::countr_zero(steps);
    }
};

// D = op(A) op(B) + C. Where `out` lies by rows, that is out' = right' left'.
struct LibraryMatmul {
    bool swapped;
    LibraryMatrix a, b, c, d;

    explicit LibraryMatmul(const Matmul& p)
        : swapped(leading_of(p.out)->by_rows),
          a(swapped ? p.right : p.left, swapped, swapped ? p.batch.right : p.batch.left),
          b(swapped ? p.left : p.right, swapped, swapped ? p.batch.left : p.batch.right),
          c(p.addend.value_or(p.out), swapped, p.batch.out), d(p.out, swapped, p.batch.out) {}

    MatmulDescriptors descriptors(const Matmul& p) const {
        MatmulDescriptors all;
        check(cublasLtMatmulDescInit(&all.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a matmul");
        set(all.operation, CUBLASLT_MATMUL_DESC_TRANSA, a.operation);
        set(all.operation, CUBLASLT_MATMUL_DESC_TRANSB, b.operation);
        if (p.has_bias) {
            set(all.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
            set(all.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.out.dtype));
        }
        all.a = a.layout(p.batch.count), all.b = b.layout(p.batch.count);
        all.c = c.layout(p.batch.count), all.d = d.layout(p.batch.count);
        return all;
    }

    // In the words of the file of tuned matmuls: everything that may make another algorithm the best.
    std::string description(const Matmul& p) const {
        const auto letter = [](const LibraryMatrix& m) { return m.operation == CUBLAS_OP_N ? 'N' : 'T'; };
        std::string text = fmt::format("{} x {} -> {}, m {}, n {}, k {}, {}{}, leading {} {} {} {}", name_of(a.dtype),
                                       name_of(b.dtype), name_of(d.dtype), d.rows, d.columns, p.left.columns, letter(a),
                                       letter(b), a.leading, b.leading, c.leading, d.leading);
        if (p.batch.count > 1)
            text +=
                fmt::format(", batch {} by {} {} {}", p.batch.count, a.batch_stride, b.batch_stride, d.batch_stride);
        if (p.has_bias) text += ", bias";
        if (p.addend) text += ", added";
        return text;
    }
};

// The algorithms that the library thinks fit, best first; only those whose sums have a fixed order.
std::vector<cublasLtMatmulHeuristicResult_t> ask_for_algorithms(const CublasHandle& handle,
                                                                MatmulDescriptors descriptors, bool has_bias,
                                                                const MatmulAlignment& alignment, int most) {
    cublasLtMatmulPreferenceOpaque_t preference{};
    check(cublasLtMatmulPreferenceInit(&preference), "asking for algorithms");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(Cublas::workspace.count));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)); // or none, which is 0
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.a);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.b);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.d);
    // Looked at for its alignment, not followed.
    if (has_bias)
        set(descriptors.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<std::uintptr_t>(alignment.bias));

    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most)); // zeros
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle.get, &descriptors.operation, &descriptors.a, &descriptors.b,
                                       &descriptors.c, &descriptors.d, &preference, most, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check(status, "asking for algorithms");
    found.resize(static_cast<std::size_t>(count));
    std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& one) {
        std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
        std::size_t written = 0;
        cublasLtMatmulAlgoConfigGetAttribute(&one.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                             &written);
        return one.state != CUBLAS_STATUS_SUCCESS ||
               one.workspaceSize > static_cast<std::size_t>(Cublas::workspace.count) ||
               (scheme != CUBLASLT_REDUCTION_SCHEME_NONE && scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    });
    return found;
}

std::string hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
    std::string text;
    for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
    return text;
}

// The one of the candidates that is written so. Nothing else is ever taken from the file.
std::optional<cublasLtMatmulAlgo_t> find(const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                                         const std::string& algorithm) {
    for (const auto& candidate : candidates)
        if (hexadecimal(candidate.algo) == algorithm) return candidate.algo;
    return std::nullopt;
}

bool is_multiple(const void* pointer, std::uint32_t alignment) {
    return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

} // namespace

Matrix matrix_of(const Operand& operand) {
    const Shape& shape = operand.type.shape;
    Matrix m{operand.type.dtype, 1, shape.back(), 0, operand.strides.back()};
    for (int d = shape.rank() - 2; d >= 0; --d) {
        if (shape[d] != 1 && m.rows == 1) m.row_stride = operand.strides[d];
        m.rows *= shape[d];
    }
    return m;
}

CublasHandle::CublasHandle() { check(cublasLtCreate(&get), "opening cuBLASLt"); }
CublasHandle::~CublasHandle() { cublasLtDestroy(get); }

bool PreparedMatmul::is_aligned(const MatmulPointers& p) const {
    return is_multiple(swapped_ ? p.right : p.left, alignment_.a) &&
           is_multiple(swapped_ ? p.left : p.right, alignment_.b) && is_multiple(p.addend, alignment_.c) &&
           is_multiple(p.out, alignment_.d) && is_multiple(p.bias, alignment_.bias);
}

cublasStatus_t PreparedMatmul::run_with(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream,
                                        const MatmulPointers& p, std::byte* workspace) const {
    MatmulDescriptors call = descriptors_; // a flat value; the bias is part of the description
    if (matmul_.has_bias) set(call.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    const float one = 1, beta = matmul_.addend ? 1 : 0;
    return cublasLtMatmul(handle_->get, &call.operation, &one, swapped_ ? p.right : p.left, &call.a,
                          swapped_ ? p.left : p.right, &call.b, &beta, matmul_.addend ? p.addend : p.out, &call.c,
                          p.out, &call.d, &algorithm, workspace, static_cast<std::size_t>(Cublas::workspace.count),
                          stream);
}

void PreparedMatmul::run(cudaStream_t stream, const MatmulPointers& pointers, std::byte* workspace) const {
    const auto& algorithm = is_aligned(pointers) ? aligned_ : unaligned_;
    if (!algorithm) return launch_plain_matmul(stream, matmul_, pointers);
    check(run_with(*algorithm, stream, pointers, workspace), "a matrix product");
}

Cublas::Cublas(const Gpu& gpu)
    : handle_(std::make_shared<CublasHandle>()), l2_bytes_(gpu.l2_bytes),
      cache_(cache_folder(), fmt::format("{} cublaslt {}", gpu.name, cublasLtGetVersion())) {}

std::shared_ptr<const PreparedMatmul> Cublas::prepare(const Matmul& matmul) {
    auto made = std::make_shared<PreparedMatmul>();
    made->handle_ = handle_;
    made->matmul_ = matmul;
    if (!fits_cublas(matmul)) return made;

    const LibraryMatmul library(matmul);
    const std::lock_guard lock(mutex_);
    const std::string description = library.description(matmul);
    std::shared_ptr<const PreparedMatmul>& known = prepared_[{description, library.swapped}];
    if (known) return known;
    made->swapped_ = library.swapped;
    made->descriptors_ = library.descriptors(matmul);
    const auto element = static_cast<std::uint32_t>(size_of(matmul.left.dtype));
    const auto out_element = static_cast<std::uint32_t>(size_of(matmul.out.dtype));
    const auto anywhere = ask_for_algorithms(*handle_, made->descriptors_, matmul.has_bias,
                                             {element, element, out_element, out_element, out_element}, 1);
    if (!anywhere.empty()) made->unaligned_ = anywhere.front().algo;
    made->alignment_ = {library.a.alignment(), library.b.alignment(), library.c.alignment(), library.d.alignment(), 16};
    made->aligned_ = choose(*made, description);
    if (!made->aligned_) made->aligned_ = made->unaligned_;
    known = made;
    return known;
}

std::optional<cublasLtMatmulAlgo_t> Cublas::choose(const PreparedMatmul& matmul, const std::string& description) {
    constexpr int most_candidates = 24;
    constexpr double worth_measuring = 50e6; // floating-point operations; tests stay quick
    const Matmul& p = matmul.matmul_;
    const auto candidates =
        ask_for_algorithms(*handle_, matmul.descriptors_, p.has_bias, matmul.alignment_, most_candidates);
    if (candidates.empty()) return std::nullopt;
    const double flops = 2.0 * static_cast<double>(p.batch.count) * static_cast<double>(p.out.rows) *
                         static_cast<double>(p.out.columns) * static_cast<double>(p.left.columns);
    if (flops < worth_measuring || candidates.size() == 1) return candidates.front().algo;
    auto taken = [&](const cublasLtMatmulAlgo_t& algorithm) {
        chosen_[description] = hexadecimal(algorithm);
        return algorithm;
    };
    if (const auto given = given_.find(description); given != given_.end())
        if (const auto found = find(candidates, given->second)) return taken(*found);
    if (const auto known = cache_.find(description)) {
        if (const auto found = find(candidates, known->algorithm)) return taken(*found);
        cache_.refuse(description);
    }
    if (!cache_.writable()) return candidates.front().algo;
    double microseconds = 0;
    const std::size_t best = measure(matmul, candidates, microseconds);
    // What is not kept is not used: the next run would not know of it, and might measure another order.
    const auto kept = cache_.keep(description, {hexadecimal(candidates[best].algo), microseconds});
    const auto found = kept ? find(candidates, kept->algorithm) : std::nullopt;
    return found ? taken(*found) : candidates.front().algo;
}

std::map<std::string, std::string> Cublas::timed_choices() const {
    const std::lock_guard lock(mutex_);
    return chosen_;
}

void Cublas::follow_timed_choices(const std::map<std::string, std::string>& choices) {
    const std::lock_guard lock(mutex_);
    given_ = choices;
}

} // namespace tutti::backend::cuda

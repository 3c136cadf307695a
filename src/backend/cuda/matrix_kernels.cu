#include "backend/cuda/matrix_kernels.h"

#include "backend/cuda/rows.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 1 << 16;

int blocks_for(std::int64_t count) {
    return static_cast<int>(std::min<std::int64_t>(divide_up(count, threads), most_blocks));
}

__device__ std::int64_t first_index() { return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; }
__device__ std::int64_t index_step() { return gridDim.x * std::int64_t{blockDim.x}; }

struct PlainMatmul {
    Matrix left, right, out, addend;
    Batch batch;
    const void *left_data, *right_data, *bias, *addend_data;
    void* out_data;
};

// An element of the result per thread and turn. The addend may be where the result goes: each element is read by the
// thread that writes it.
template <class In, class Out>
__global__ void plain_matmul(PlainMatmul p) {
    const std::int64_t size = p.out.rows * p.out.columns;
    for (std::int64_t at = first_index(); at < p.batch.count * size; at += index_step()) {
        const std::int64_t batch = at / size, i = at % size / p.out.columns, j = at % p.out.columns;
        const In* left = static_cast<const In*>(p.left_data) + batch * p.batch.left + i * p.left.row_stride;
        const In* right = static_cast<const In*>(p.right_data) + batch * p.batch.right + j * p.right.column_stride;
        double sum = 0;
        for (std::int64_t k = 0; k < p.left.columns; ++k)
            sum += static_cast<double>(to_float(left[k * p.left.column_stride])) *
                   static_cast<double>(to_float(right[k * p.right.row_stride]));
        if (p.bias) sum += to_float(static_cast<const Out*>(p.bias)[j]);
        if (p.addend_data)
            sum +=
                to_float(static_cast<const Out*>(p.addend_data)[i * p.addend.row_stride + j * p.addend.column_stride]);
        static_cast<Out*>(p.out_data)[batch * p.batch.out + i * p.out.row_stride + j * p.out.column_stride] =
            from_float<Out>(static_cast<float>(sum));
    }
}

// Row blockIdx.y and every gridDim.y-th after it. `columns` are of `size` elements each; rows begin at multiples of
// them.
constexpr int copies_in_flight = 8;
template <class T, class To, int size>
__global__ __launch_bounds__(threads) void copy_rows(const T* from, std::int64_t from_stride, To* to,
                                                     std::int64_t to_stride, std::int64_t rows, std::int64_t columns,
                                                     bool add) {
    const std::int64_t first = blockIdx.x * std::int64_t{threads * copies_in_flight} + threadIdx.x;
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const T* source = from + row * from_stride;
        To* target = to + row * to_stride;
        Elements<T, size> copies[copies_in_flight];
#pragma unroll
        for (int i = 0; i < copies_in_flight; ++i)
            if (first + i * threads < columns) copies[i] = load_elements<size>(source + (first + i * threads) * size);
#pragma unroll
        for (int i = 0; i < copies_in_flight; ++i) {
            if (first + i * threads >= columns) break;
            To* const at = target + (first + i * threads) * size;
            Elements<To, size> held = {};
            if (add) held = load_elements<size>(at);
            for (int e = 0; e < size; ++e) {
                const float x = to_float(copies[i].element[e]);
                held.element[e] = from_float<To>(add ? to_float(held.element[e]) + x : x);
            }
            store_elements(at, held);
        }
    }
}

template <class T, class To>
void launch_copy(cudaStream_t stream, Matrix from, const T* data, std::int64_t to_stride, To* to, bool add) {
    constexpr int size = Pack<T>::size;
    constexpr std::int64_t most_rows = 65535;                         // that a grid has
    if (from.row_stride == from.columns && to_stride == from.columns) // one long row
        from = {from.dtype, 1, from.rows * from.columns, from.rows * from.columns, 1};
    const bool on_packs = aligned({data, to}) && from.columns % size == 0 &&
                          (from.rows == 1 || (from.row_stride % size == 0 && to_stride % size == 0));
    const std::int64_t columns = on_packs ? from.columns / size : from.columns;
    const dim3 grid(static_cast<unsigned>(divide_up(columns, threads * copies_in_flight)),
                    static_cast<unsigned>(std::min(from.rows, most_rows)));
    const auto kernel = on_packs ? copy_rows<T, To, size> : copy_rows<T, To, 1>;
    kernel<<<grid, threads, 0, stream>>>(data, from.row_stride, to, to_stride, from.rows, columns, add);
    launched("copying rows");
}

// A column per thread; eight partial sums keep as many loads in flight.
template <class T, class Out>
__global__ void column_sums(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t row_stride, bool add,
                            Out* sums) {
    const std::int64_t column = first_index();
    if (column >= columns) return;
    constexpr int width = 8;
    float partial[width] = {};
    const T* at = x + column;
    std::int64_t row = 0;
    for (; row + width <= rows; row += width)
#pragma unroll
        for (int i = 0; i < width; ++i) partial[i] += to_float(at[(row + i) * row_stride]);
    float sum = 0;
    for (; row < rows; ++row) sum += to_float(at[row * row_stride]);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += partial[i];
    sums[column] = from_float<Out>(add ? to_float(sums[column]) + sum : sum);
}

// The finaliser of MurmurHash3, of the element's number.
template <class T>
__global__ void random_values(T* x, std::int64_t count) {
    for (std::int64_t i = first_index(); i < count; i += index_step()) {
        auto bits = static_cast<std::uint32_t>(i) * 0x9e3779b9u + 1;
        bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
        bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
        bits ^= bits >> 16;
        x[i] = from_float<T>(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f);
    }
}

} // namespace

void launch_plain_matmul(cudaStream_t stream, const Matmul& matmul, const MatmulPointers& pointers) {
    const PlainMatmul p{.left = matmul.left,
                        .right = matmul.right,
                        .out = matmul.out,
                        .addend = matmul.addend.value_or(matmul.out),
                        .batch = matmul.batch,
                        .left_data = pointers.left,
                        .right_data = pointers.right,
                        .bias = matmul.has_bias ? pointers.bias : nullptr,
                        .addend_data = matmul.addend ? pointers.addend : nullptr,
                        .out_data = pointers.out};
    const int blocks = blocks_for(p.batch.count * p.out.rows * p.out.columns);
    if (p.left.dtype == DType::float32)
        plain_matmul<float, float><<<blocks, threads, 0, stream>>>(p);
    else if (p.out.dtype == DType::float32)
        plain_matmul<bf16, float><<<blocks, threads, 0, stream>>>(p);
    else
        plain_matmul<bf16, bf16><<<blocks, threads, 0, stream>>>(p);
    launched("a matrix product");
}

void launch_copy_rows(cudaStream_t stream, const Matrix& from, const void* data, const Matrix& to, void* to_data,
                      bool add) {
    auto copy = [&]<class T, class To>(const T* source, To* target) {
        launch_copy(stream, from, source, to.row_stride, target, add);
    };
    if (from.dtype == DType::bfloat16)
        copy(static_cast<const bf16*>(data), static_cast<bf16*>(to_data));
    else if (to.dtype == DType::bfloat16)
        copy(static_cast<const float*>(data), static_cast<bf16*>(to_data));
    else
        copy(static_cast<const float*>(data), static_cast<float*>(to_data));
}

void launch_padded_copy(cudaStream_t stream, const Matrix& from, const void* data, std::int64_t rows, void* to) {
    launch_copy_rows(stream, from, data, {from.dtype, rows, from.columns, from.columns, 1}, to);
    const std::int64_t row_bytes = from.columns * size_of(from.dtype);
    check(cudaMemsetAsync(static_cast<std::byte*>(to) + from.rows * row_bytes, 0,
                          static_cast<std::size_t>((rows - from.rows) * row_bytes), stream),
          "padding a matrix");
}

void launch_column_sums(cudaStream_t stream, DType dtype, const void* x, std::int64_t rows, std::int64_t columns,
                        std::int64_t row_stride, bool add, DType sum_dtype, void* sums) {
    constexpr int columns_per_block = 64; // few, to have blocks for all multiprocessors
    const auto blocks = static_cast<unsigned>(divide_up(columns, columns_per_block));
    auto sum = [&]<class T, class Out>(const T* from, Out* to) {
        column_sums<<<blocks, columns_per_block, 0, stream>>>(from, rows, columns, row_stride, add, to);
    };
    if (dtype == DType::float32)
        sum(static_cast<const float*>(x), static_cast<float*>(sums));
    else if (sum_dtype == DType::float32)
        sum(static_cast<const bf16*>(x), static_cast<float*>(sums));
    else
        sum(static_cast<const bf16*>(x), static_cast<bf16*>(sums));
    launched("the sums of columns");
}

void launch_random_values(cudaStream_t stream, DType dtype, void* x, std::int64_t count) {
    if (dtype == DType::float32)
        random_values<<<blocks_for(count), threads, 0, stream>>>(static_cast<float*>(x), count);
    else
        random_values<<<blocks_for(count), threads, 0, stream>>>(static_cast<bf16*>(x), count);
    launched("random values");
}

} // namespace tutti::backend::cuda

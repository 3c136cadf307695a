// Sums over rows in two stages: blocks of rows give partial sums [count, sums, width], which are added in order, in
// double. The result depends on nothing but the sizes.
#pragma once

#include "backend/cuda/cuda.h"

#include <type_traits>

namespace tutti::backend::cuda {

// What the partial sums of elements of type T are kept in: float32 is meant to be exact, even where much cancels out.
template <class T>
using ColumnSum = std::conditional_t<std::is_same_v<T, float>, double, float>;

constexpr int most_column_sums = 2;

// Where the sums go, float32 or bf16; gradients of parameters have the parameter's strides.
struct ColumnOutputs {
    std::byte* to[most_column_sums] = {};
    std::int64_t strides[most_column_sums] = {1, 1};
    int sums = 1;
    bool accumulate = false, is_narrow = false;

    ColumnOutputs() = default;
    // The outputs of the request from number `first` on.
    ColumnOutputs(const KernelRequest& request, std::size_t first)
        : accumulate(request.accumulate), is_narrow(request.outputs.back().type.dtype == DType::bfloat16) {
        sums = static_cast<int>(request.outputs.size() - first);
        for (int s = 0; s < sums; ++s) {
            const Operand& output = request.outputs[first + static_cast<std::size_t>(s)];
            if (!output.strides.empty() && output.elements() > 1) strides[s] = output.strides[0];
        }
    }
};

// Sum: float or double.
template <class Sum>
void launch_finish_columns(const Sum* partial, std::int64_t count, std::int64_t width, const ColumnOutputs& outputs,
                           cudaStream_t stream);

} // namespace tutti::backend::cuda

// What the device code of this folder shares: element types, 16-byte packs, reductions, strided operands.
#pragma once

#include "backend/cuda/cuda.h"
#include "base/error.h"

#include <cuda_bf16.h>

#include <cstdint>
#include <memory>

namespace tutti::backend::cuda {

using bf16 = __nv_bfloat16;

// Calls make.template operator()<T>() with the device type of a float32 or bf16 operand.
template <class Make>
auto for_floating(const KernelRequest& request, DType dtype, Make make) {
    if (dtype == DType::float32) return make.template operator()<float>();
    if (dtype == DType::bfloat16) return make.template operator()<bf16>();
    fail_unsupported(backend_name, request);
}

// Adds a kernel class for float32 and bf16, chosen by the type of input `data`.
template <template <class> class KernelOf>
void add_floating(KernelTable& table, const char* name, std::size_t data = 0) {
    table.add(name, PrepareKernel([data](const KernelRequest& request) {
                  return for_floating(
                      request, request.inputs[data].type.dtype,
                      [&]<class T>() -> std::unique_ptr<Kernel> { return std::make_unique<KernelOf<T>>(request); });
              }));
}

// After a launch: what went wrong with it, if anything did.
inline void launched(const char* op) { check(cudaGetLastError(), op); }

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
template <class T>
__device__ T from_float(float x) {
    if constexpr (std::is_same_v<T, bf16>)
        return __float2bfloat16_rn(x);
    else
        return x;
}

// Sixteen bytes, loaded and stored as one.
template <class T>
struct alignas(16) Pack {
    static constexpr int size = 16 / sizeof(T);
    T element[size];
};

template <class T>
__device__ Pack<T> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ void store_pack(T* to, const Pack<T>& pack) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
}

constexpr int warp_size = 32;

__device__ inline float warp_sum(float x) {
    for (int offset = warp_size / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int offset = warp_size / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Where the elements of a tensor of any strides lie, by their number in row-major order. Neighbouring dimensions are
// joined where that is possible. A plain value that kernels take as a parameter.
struct Strided {
    static constexpr int max_rank = 8;
    int rank = 0;
    std::int64_t count = 1;
    std::int64_t sizes[max_rank] = {}, strides[max_rank] = {};

    Strided() = default;
    explicit Strided(const Operand& operand) : Strided(operand.type.shape, operand.strides) {}
    Strided(const Shape& shape, const Shape& steps) {
        for (int d = 0; d < shape.rank(); ++d) {
            count *= shape[d];
            if (shape[d] == 1) continue;
            if (rank > 0 && strides[rank - 1] == steps[d] * shape[d]) {
                sizes[rank - 1] *= shape[d];
                strides[rank - 1] = steps[d];
            } else {
                sizes[rank] = shape[d];
                strides[rank++] = steps[d];
            }
        }
    }
    bool dense() const { return rank == 0 || (rank == 1 && strides[0] == 1); }

    __host__ __device__ std::int64_t at(std::int64_t i) const {
        std::int64_t place = 0;
        for (int d = rank - 1; d > 0; --d) {
            place += i % sizes[d] * strides[d];
            i /= sizes[d];
        }
        return rank == 0 ? 0 : place + i * strides[0];
    }
};

} // namespace tutti::backend::cuda

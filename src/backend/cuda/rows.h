// Rows and the threads that work on them, for the norms and their gradients.
//
// A row belongs to a group of threads: a warp, or several where the row is long. Where rows begin at multiples of 16
// bytes and are not too long, every thread keeps its share, `packs` packs, in registers; otherwise it reads single
// elements, again each time they are needed.
//
//   block:  group 0: row 4i   [ thread 0: pack 0, 32, 64 | thread 1: pack 1, 33, 65 | ... ]
//           group 1: row 4i+1 [ ...
//
// A group of several warps is a block, so that it can meet at the block's own barrier: named ones are few, and a kernel
// that takes all sixteen gets no more than four blocks on a multiprocessor.
#pragma once

#include "backend/cuda/kernels.h"

#include <algorithm>
#include <initializer_list>

namespace tutti::backend::cuda {

// Neighbouring elements, loaded and stored as one.
template <class T, int size>
struct alignas(sizeof(T) * size) Elements {
    T element[size];
};
template <int size, class T>
__device__ Elements<T, size> load_elements(const T* from) {
    return *reinterpret_cast<const Elements<T, size>*>(from);
}
// Of what no thread of the kernel writes: the compiler may load it ahead of stores.
template <int size, class T>
__device__ Elements<T, size> load_constant(const T* from) {
    if constexpr (sizeof(Elements<T, size>) == sizeof(int4)) {
        const int4 bytes = __ldg(reinterpret_cast<const int4*>(from));
        return reinterpret_cast<const Elements<T, size>&>(bytes);
    } else {
        return load_elements<size>(from);
    }
}
template <int size, class T>
__device__ void store_elements(T* to, const Elements<T, size>& elements) {
    *reinterpret_cast<Elements<T, size>*>(to) = elements;
}

inline std::int64_t width_of(const Operand& operand) {
    return operand.type.shape.empty() ? 1 : operand.type.shape.back();
}
// Where the rows of a tensor begin: all its dimensions but the last.
inline Strided rows_of(const Operand& operand) {
    Shape shape = operand.type.shape, strides = operand.strides;
    if (!shape.empty()) {
        shape.erase(shape.rank() - 1);
        strides.erase(strides.rank() - 1);
    }
    return {shape, strides};
}
// Whether all rows begin at a multiple of `pack` elements, given that the first does.
inline bool rows_fit(const Strided& rows, std::int64_t pack) {
    for (int d = 0; d < rows.rank; ++d)
        if (rows.strides[d] % pack != 0) return false;
    return true;
}
inline bool aligned(std::initializer_list<const void*> pointers) {
    return std::all_of(pointers.begin(), pointers.end(),
                       [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

struct RowPlan {
    int packs = 0; // that a thread keeps; 0: none, it reads single elements
    int threads = 32, groups = 4;

    dim3 block() const { return {static_cast<unsigned>(threads), static_cast<unsigned>(groups)}; }
    unsigned blocks(std::int64_t rows) const { return static_cast<unsigned>(divide_up(rows, groups)); }
};

constexpr int most_packs = 4;

inline RowPlan plan_rows(std::int64_t width, std::int64_t pack, bool on_packs, int most_threads = 512) {
    RowPlan plan;
    if (on_packs && width % pack == 0 && width / pack <= std::int64_t{most_packs} * most_threads) {
        const std::int64_t packs = width / pack;
        while (plan.threads * most_packs < packs) plan.threads *= 2;
        plan.packs = static_cast<int>(divide_up(packs, plan.threads));
    } else {
        while (plan.threads < 256 && plan.threads * 8 < width) plan.threads *= 2;
    }
    if (plan.threads > warp_size) plan.groups = 1;
    return plan;
}

// Calls body.template operator()<packs>().
template <class Body>
void for_packs(int packs, Body body) {
    switch (packs) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 3: return body.template operator()<3>();
    case 4: return body.template operator()<4>();
    default: return body.template operator()<0>();
    }
}

// The elements of a row that are this thread's.
template <class T, int packs>
struct RowShare {
    static constexpr int size = packs > 0 ? Pack<T>::size : 1;
    static constexpr int kept = packs > 0 ? packs : 1;
    using Part = Elements<T, size>;

    int width;

    // body(part, first element); parts are numbered only where they are kept.
    template <class Body>
    __device__ void each(Body body) const {
        if constexpr (packs > 0) {
#pragma unroll
            for (int part = 0; part < packs; ++part) {
                const int first = (part * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * size;
                if (first < width) body(part, first);
            }
        } else {
            for (int first = static_cast<int>(threadIdx.x); first < width; first += static_cast<int>(blockDim.x))
                body(0, first);
        }
    }
    // What was kept of a row, or what lies there.
    __device__ static Part part_of(const Part (&parts)[kept], int part, const T* row, int first) {
        if constexpr (packs > 0) return parts[part];
        return load_elements<size>(row + first);
    }
};

// Sums over the threads of a group. Two places are used in turn, so that one meeting of several warps is enough.
class GroupSum {
  public:
    static constexpr int places = 2 * 32;

    __device__ explicit GroupSum(float2 (&shared)[places]) : shared_(shared) {}

    __device__ float2 operator()(float2 x) {
        x = {warp_sum(x.x), warp_sum(x.y)};
        if (warps() == 1) return x;
        const float2* sums = meet(x);
        x = {0, 0};
        for (int w = 0; w < warps(); ++w) x = {x.x + sums[w].x, x.y + sums[w].y};
        return x;
    }
    __device__ float operator()(float x) {
        x = warp_sum(x);
        if (warps() == 1) return x;
        const float2* sums = meet({x, 0});
        x = 0;
        for (int w = 0; w < warps(); ++w) x += sums[w].x;
        return x;
    }

  private:
    __device__ static int warps() { return static_cast<int>(blockDim.x) / warp_size; }
    // Every warp's sum, for all threads of the group.
    __device__ const float2* meet(float2 sum) {
        float2* sums = shared_ + turn_ * 32;
        turn_ ^= 1;
        if (threadIdx.x % warp_size == 0) sums[threadIdx.x / warp_size] = sum;
        __syncthreads();
        return sums;
    }

    float2* shared_;
    int turn_ = 0;
};

} // namespace tutti::backend::cuda

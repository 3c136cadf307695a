// The gradient of an embedding's table: for every row, the sum of dy over the tokens that took it.
//
//   tokens sorted by row   | 3 3 3 5 | 5 5 5 5 | 5 8 8 9 |     a tile: so many tokens
//   sums of tiles            3   5>    >5>        >5 8  9
//
// The order of tokens within a row stays, so the sums always come out the same. A row that lies in one tile is written
// by it; of a row that reaches over tiles each writes its part to the workspace, and a second kernel adds these up. So
// it does not matter how often a row occurs.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/index.h"

#include <cub/device/device_radix_sort.cuh>

#include <bit>

namespace tutti::backend::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile = 32;
constexpr int at_once = 8; // rows of dy in flight in a thread

using Number = std::uint32_t;

// The row of each token; `rows`, beyond all of them, for those that add nothing.
__global__ void number_tokens(Ids ids, Number* keys, Number* tokens, Number count, std::int64_t rows,
                              std::int64_t first, std::int64_t padding) {
    const Number i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const std::int64_t id = ids.at(i), row = id - first;
    keys[i] = static_cast<Number>(row < 0 || row >= rows || id == padding ? rows : row);
    tokens[i] = i;
}

// Up to sixteen bytes at a time.
template <int size, class Out>
__device__ void write_sums(Out* to, const float (&sum)[size], bool accumulate) {
    constexpr int together = size < Pack<Out>::size ? size : Pack<Out>::size;
#pragma unroll
    for (int i = 0; i < size; i += together) {
        Group<Out, together> old = {}, group;
        if (accumulate) old = load_group<Out, together>(to + i, false);
        for (int e = 0; e < together; ++e)
            group.element[e] = from_float<Out>(accumulate ? to_float(old.element[e]) + sum[i + e] : sum[i + e]);
        *reinterpret_cast<Group<Out, together>*>(to + i) = group;
    }
}

// The table's gradient.
template <class Out>
struct Table {
    Out* data;
    std::int64_t rows, width;
    bool accumulate;

    __device__ Out* at(Number row, std::int64_t column) const { return data + row * width + column; }
};

// Sums of parts of rows: of each tile, of its first row where that began before it, of its last where it goes on.
struct Parts {
    float* data;
    std::int64_t width;
    __device__ float* began_before(std::int64_t t) const { return data + 2 * t * width; }
    __device__ float* goes_on(std::int64_t t) const { return data + (2 * t + 1) * width; }
};

// A block for a tile, a thread for `size` columns.
template <int size, class T, class Out>
__global__ void __launch_bounds__(threads)
    sum_tiles(const Number* __restrict__ keys, const Number* __restrict__ tokens, Number count,
              const T* __restrict__ dy, Table<Out> table, Parts parts) {
    __shared__ Number own_keys[tile], own_tokens[tile];
    const Number begin = blockIdx.x * tile, here = min(static_cast<Number>(tile), count - begin);
    if (threadIdx.x < here) {
        own_keys[threadIdx.x] = keys[begin + threadIdx.x];
        own_tokens[threadIdx.x] = tokens[begin + threadIdx.x];
    }
    const bool first_began_before = begin > 0 && keys[begin - 1] == keys[begin];
    const bool last_goes_on = begin + here < count && keys[begin + here] == keys[begin + here - 1];
    __syncthreads();
    const std::int64_t column = (std::int64_t{blockIdx.y} * threads + threadIdx.x) * size;
    if (column >= table.width) return;

    float sum[size] = {};
    auto write = [&](Number row, bool is_first, bool is_last) {
        if (is_first && first_began_before)
            write_sums(parts.began_before(blockIdx.x) + column, sum, false);
        else if (is_last && last_goes_on)
            write_sums(parts.goes_on(blockIdx.x) + column, sum, false);
        else
            write_sums(table.at(row, column), sum, table.accumulate);
    };
    bool is_first = true;
    for (Number start = 0; start < here; start += at_once) {
        Group<T, size> rows[at_once];
#pragma unroll
        for (int k = 0; k < at_once; ++k)
            if (start + k < here && own_keys[start + k] < table.rows)
                rows[k] = load_group<T, size>(dy + own_tokens[start + k] * table.width + column, false);
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const Number n = start + k;
            if (n >= here || own_keys[n] >= table.rows) continue;
#pragma unroll
            for (int i = 0; i < size; ++i) sum[i] += to_float(rows[k].element[i]);
            const bool is_last = n + 1 == here;
            if (!is_last && own_keys[n + 1] == own_keys[n]) continue;
            write(own_keys[n], is_first, is_last);
            is_first = false;
            for (int i = 0; i < size; ++i) sum[i] = 0;
        }
    }
}

// A block for a tile: where a row begins in it and goes on, its parts are added up.
template <int size, class Out>
__global__ void __launch_bounds__(threads)
    join_tiles(const Number* __restrict__ keys, Number count, Number tiles, Table<Out> table, Parts parts) {
    const Number t = blockIdx.x, begin = t * tile, next = begin + tile;
    if (next >= count) return;
    const Number row = keys[next];
    if (row >= table.rows || keys[next - 1] != row) return;
    if (begin > 0 && keys[begin - 1] == row) return; // it began before: keys are sorted
    const std::int64_t column = (std::int64_t{blockIdx.y} * threads + threadIdx.x) * size;
    if (column >= table.width) return;
    // The first tile after t that does not begin with the row.
    Number low = t + 1, high = tiles;
    while (low < high) {
        const Number middle = (low + high) / 2;
        if (keys[middle * tile] == row)
            low = middle + 1;
        else
            high = middle;
    }
    float sum[size];
#pragma unroll
    for (int i = 0; i < size; ++i) sum[i] = parts.goes_on(t)[column + i];
#pragma unroll 8
    for (Number u = t + 1; u < low; ++u) {
        const auto part = load_group<float, size>(parts.began_before(u) + column, false);
#pragma unroll
        for (int i = 0; i < size; ++i) sum[i] += part.element[i];
    }
    write_sums(table.at(row, column), sum, table.accumulate);
}

struct Zero {
    __device__ float operator()() const { return 0; }
};

template <class T, class Out>
class EmbeddingGradient : public Kernel {
  public:
    explicit EmbeddingGradient(const KernelRequest& request)
        : count_(static_cast<Number>(request.inputs[1].elements())),
          wide_ids_(request.inputs[1].type.dtype == DType::int64), first_(request.attributes.integer("first_row", 0)),
          padding_(request.attributes.integer("padding_row", -1)), clear_(request.outputs[0], {}) {
        const Operand& out = request.outputs[0];
        constexpr std::int64_t most = std::int64_t{1} << 31;
        if (request.inputs[1].elements() >= most || out.type.shape[0] >= most || !out.dense())
            fail_unsupported(backend_name, request);
        table_ = {nullptr, out.type.shape[0], out.type.shape[1], request.accumulate};
        bits_ = std::bit_width(static_cast<Number>(table_.rows));
        check(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes_, static_cast<const Number*>(nullptr),
                                              static_cast<Number*>(nullptr), static_cast<const Number*>(nullptr),
                                              static_cast<Number*>(nullptr), count_, 0, bits_),
              "preparing a sort");
    }

    Bytes workspace() const override { return {parts_at() + 2 * tiles() * table_.width * 4}; }

    void run(const Launch& launch) const override {
        const cudaStream_t stream = stream_of(launch);
        auto* keys = reinterpret_cast<Number*>(launch.workspace);
        const std::int64_t numbers = number_bytes() / 4;
        Number *tokens = keys + numbers, *sorted_keys = tokens + numbers, *sorted_tokens = sorted_keys + numbers;
        if (!table_.accumulate) clear_.run("embedding_gradient", stream, launch.out<Out>(0));
        number_tokens<<<blocks(count_, threads), threads, 0, stream>>>(Ids{launch.inputs[1], wide_ids_}, keys, tokens,
                                                                       count_, table_.rows, first_, padding_);
        launched("embedding_gradient");
        std::size_t sort_bytes = sort_bytes_;
        check(cub::DeviceRadixSort::SortPairs(launch.workspace + 4 * number_bytes(), sort_bytes, keys, sorted_keys,
                                              tokens, sorted_tokens, count_, 0, bits_, stream),
              "embedding_gradient");
        Table<Out> table = table_;
        table.data = launch.out<Out>(0);
        const Parts parts{reinterpret_cast<float*>(launch.workspace + parts_at()), table_.width};
        const auto places =
            reinterpret_cast<std::uintptr_t>(table.data) | reinterpret_cast<std::uintptr_t>(launch.inputs[0]);
        const bool packs = places % 16 == 0 && table_.width % size == 0;
        const auto sum = packs ? sum_tiles<size, T, Out> : sum_tiles<1, T, Out>;
        const auto join = packs ? join_tiles<4, Out> : join_tiles<1, Out>;
        const auto columns = [&](int each) { return blocks(table_.width, threads * each); };
        const auto grid = static_cast<unsigned>(tiles());
        sum<<<dim3(grid, columns(packs ? size : 1)), block_of(packs ? size : 1), 0, stream>>>(
            sorted_keys, sorted_tokens, count_, launch.in<T>(0), table, parts);
        launched("embedding_gradient");
        join<<<dim3(grid, columns(packs ? 4 : 1)), block_of(packs ? 4 : 1), 0, stream>>>(sorted_keys, count_, grid,
                                                                                         table, parts);
        launched("embedding_gradient");
    }

  private:
    static constexpr int size = Pack<T>::size;

    static std::int64_t aligned(std::int64_t bytes) { return divide_up(bytes, 256) * 256; }
    static unsigned blocks(std::int64_t n, std::int64_t each) { return static_cast<unsigned>(divide_up(n, each)); }
    std::int64_t tiles() const { return divide_up(count_, tile); }
    // Keys and tokens, before and after sorting; what the sort needs; parts.
    std::int64_t parts_at() const { return 4 * number_bytes() + aligned(static_cast<std::int64_t>(sort_bytes_)); }
    std::int64_t number_bytes() const { return aligned(std::int64_t{count_} * 4); }
    // Threads for `each` columns apiece.
    unsigned block_of(int each) const {
        const std::int64_t wanted = divide_up(table_.width, each);
        return static_cast<unsigned>(std::min<std::int64_t>(threads, divide_up(wanted, warp_size) * warp_size));
    }

    Number count_;
    bool wide_ids_;
    std::int64_t first_, padding_;
    Elementwise<Zero, Out> clear_;
    Table<Out> table_;
    int bits_;
    std::size_t sort_bytes_ = 0;
};

} // namespace

void add_embedding_gradient_kernel(KernelTable& table) {
    table.add("embedding_gradient", PrepareKernel([](const KernelRequest& request) {
                  return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() {
                      return for_floating(request, request.outputs[0].type.dtype,
                                          [&]<class Out>() -> std::unique_ptr<Kernel> {
                                              return std::make_unique<EmbeddingGradient<T, Out>>(request);
                                          });
                  });
              }));
}

} // namespace tutti::backend::cuda

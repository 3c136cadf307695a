// The gradient of attention, from the scores computed again:
//   p_ij = exp(s_ij - lse_i), ds_ij = p_ij (d_ij (do_i v_j) - do_i o_i), d_ij what dropout multiplies with;
//   dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i;  dv_j = sum_i p_ij d_ij do_i;  dbias_ij = ds_ij
// First the products do_i o_i; then dq by tiles of queries; then dk and dv by tiles of keys, over all heads that a key
// head serves; the gradient of a bias by tiles of the bias, over all scores that it was added to. Each result is summed
// by one block, in order.
#include "backend/cuda/attention_plain.h"
#include "backend/cuda/attention_plain_tiles.h"

namespace tutti::backend::cuda {
namespace {

template <class T>
struct GradientTask {
    const T *dout = nullptr, *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;
    const float* lse = nullptr;
    float* row_sums = nullptr; // do_i o_i, [b, h, t]
    T *dq = nullptr, *dk = nullptr, *dv = nullptr;
    HeadStrides dout_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};
    std::int64_t lse_strides[3] = {};
    float* dbias = nullptr;
    std::int64_t dbias_sizes[4] = {}, dbias_strides[4] = {};

    explicit GradientTask(const KernelRequest& request)
        : dout_strides(head_strides(request.inputs[0])), dq_strides(head_strides(request.outputs[0])),
          dk_strides(head_strides(request.outputs[1])), dv_strides(head_strides(request.outputs[2])) {
        for (int d = 0; d < 3; ++d) lse_strides[d] = request.inputs[5].strides[d];
    }
    void bind(const Launch& l) {
        dout = l.in<T>(0), q = l.in<T>(1), k = l.in<T>(2), v = l.in<T>(3), out = l.in<T>(4), lse = l.in<float>(5);
        dq = l.out<T>(0), dk = l.out<T>(1), dv = l.out<T>(2);
    }

    __device__ float lse_of(std::int64_t b, int h, std::int64_t i) const {
        return lse[b * lse_strides[0] + h * lse_strides[1] + i * lse_strides[2]];
    }
};

// do_i o_i by the lanes of a warp.
template <class T>
__device__ float row_product(const AttentionCall& a, const GradientTask<T>& g, std::int64_t b, int h, std::int64_t i) {
    const T *dout = g.dout + g.dout_strides.at(b, i, h), *out = g.out + a.out.at(b, i, h);
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x) % warp_size; c < a.value_head; c += warp_size)
        sum += to_float(dout[c]) * to_float(out[c]);
    return warp_sum(sum);
}

// One warp for each row.
template <class T>
__global__ __launch_bounds__(256) void multiply_out(AttentionCall a, GradientTask<T> g) {
    const std::int64_t n = std::int64_t{blockIdx.x} * (256 / warp_size) + threadIdx.x / warp_size;
    if (n >= a.batch * a.heads * a.queries) return;
    const float sum =
        row_product(a, g, n / a.queries / a.heads, static_cast<int>(n / a.queries % a.heads), n % a.queries);
    if (threadIdx.x % warp_size == 0) g.row_sums[n] = sum;
}

// The probabilities of a tile, as dropout leaves them, and the gradient of its scores, both before the soft cap (`ds`)
// and after it (`capped`).
template <class Tile>
struct TileGradient {
    float p[Tile::per][Tile::per], ds[Tile::per][Tile::per], capped[Tile::per][Tile::per];

    // row_sum(i): do_i o_i.
    template <class T, class RowSum>
    __device__ void compute(const AttentionCall& a, const GradientTask<T>& g, std::int64_t b, int h, int first_query,
                            int first_key, const float* queries, const float* keys, const float* dout,
                            const float* values, RowSum row_sum) {
        float slopes[Tile::per][Tile::per];
        multiply<Tile>(queries, keys, a.head, p);
        finish_scores<Tile>(a, b, h, first_query, first_key, p, slopes);
        multiply<Tile>(dout, values, a.value_head, ds);
        const unsigned kept = draw_kept<Tile>(a, b, h, first_query, first_key);
#pragma unroll
        for (int r = 0; r < Tile::per; ++r) {
            // Queries beyond the end, and those that saw no key, have probabilities of zero.
            const int i = first_query + thread_y() * Tile::per + r;
            float lse = infinity, sum = 0;
            if (i < a.queries) lse = g.lse_of(b, h, i), sum = row_sum(i);
            if (lse == -infinity) lse = infinity;
#pragma unroll
            for (int c = 0; c < Tile::per; ++c) {
                const float probability = expf(p[r][c] - lse);
                const float factor = (kept >> (r * Tile::per + c)) & 1 ? a.dropout.kept_scale : 0.0f;
                p[r][c] = probability * factor;
                capped[r][c] = probability * (ds[r][c] * factor - sum);
                ds[r][c] = capped[r][c] * slopes[r][c];
            }
        }
    }
};

template <class Tile>
std::size_t tile_bytes(const AttentionCall& a, int score_tiles) {
    const int floats =
        Tile::size * (2 * pitch_of(a.head) + 2 * pitch_of(a.value_head) + score_tiles * Tile::score_pitch);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

// The tiles of a block, cut from its shared memory.
template <class Tile>
struct GradientTiles {
    float *queries, *keys, *dout, *values, *scores;

    __device__ GradientTiles(const AttentionCall& a, float4* shared) {
        queries = reinterpret_cast<float*>(shared);
        keys = queries + Tile::size * pitch_of(a.head);
        dout = keys + Tile::size * pitch_of(a.head);
        values = dout + Tile::size * pitch_of(a.value_head);
        scores = values + Tile::size * pitch_of(a.value_head);
    }
    template <class T>
    __device__ void load_queries(const AttentionCall& a, const GradientTask<T>& g, std::int64_t b, int h,
                                 int first) const {
        const int count = a.queries - first;
        load_tile<Tile, false>(g.q + a.q.at(b, first, h), a.q.row, count, a.head, a.packs, queries);
        load_tile<Tile, false>(g.dout + g.dout_strides.at(b, first, h), g.dout_strides.row, count, a.value_head,
                               a.packs, dout);
    }
    template <class T>
    __device__ void load_keys(const AttentionCall& a, const GradientTask<T>& g, std::int64_t b, int group,
                              int first) const {
        const int count = a.keys - first;
        load_tile<Tile, true>(g.k + a.k.at(b, first, group), a.k.row, count, a.head, a.packs, keys);
        load_tile<Tile, true>(g.v + a.v.at(b, first, group), a.v.row, count, a.value_head, a.packs, values);
    }
};

template <int most_head>
__global__ __launch_bounds__(attention_threads) void differentiate_queries(AttentionCall a, GradientTask<float> g) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    const GradientTiles<Tile> tiles(a, shared);
    const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tile::size; // those with most keys first
    const int h = static_cast<int>(blockIdx.y);
    const std::int64_t b = blockIdx.z;
    const float* const row_sums = g.row_sums + (b * a.heads + h) * a.queries;
    tiles.load_queries(a, g, b, h, first_query);
    HeadSums<Tile> dq = {};
    const KeyRange seen = BlockView(a, b, first_query, Tile::size).blocks(Tile::size);
    for (int block = seen.begin; block < seen.end; ++block) {
        const int first_key = block * Tile::size;
        __syncthreads();
        tiles.load_keys(a, g, b, a.key_head_of(h), first_key);
        __syncthreads();
        TileGradient<Tile> tile;
        tile.compute(a, g, b, h, first_query, first_key, tiles.queries, tiles.keys, tiles.dout, tiles.values,
                     [&](int i) { return row_sums[i]; });
#pragma unroll
        for (int r = 0; r < per; ++r)
            for (int c = 0; c < per; ++c)
                tiles.scores[(thread_y() * per + r) * Tile::score_pitch + thread_x() * per + c] = tile.ds[r][c];
        __syncwarp(); // a row is written and read by one half-warp
        accumulate<Tile, true>(tiles.scores, tiles.keys, a.head, dq);
    }
#pragma unroll
    for (int r = 0; r < per; ++r) {
        const int i = first_query + thread_y() * per + r;
        if (i < a.queries) store_row<Tile>(dq, r, a.scale, a.head, g.dq + g.dq_strides.at(b, i, h));
    }
}

template <int most_head>
__global__ __launch_bounds__(attention_threads) void differentiate_keys(AttentionCall a, GradientTask<float> g) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    const GradientTiles<Tile> tiles(a, shared);
    float *p = tiles.scores, *ds = p + Tile::size * Tile::score_pitch; // keys in rows
    const int first_key = static_cast<int>(blockIdx.x) * Tile::size, group = static_cast<int>(blockIdx.y);
    const std::int64_t b = blockIdx.z;
    tiles.load_keys(a, g, b, group, first_key);
    HeadSums<Tile> dk = {}, dv = {};
    for (int h = group * a.group(); h < (group + 1) * a.group(); ++h) {
        const float* const row_sums = g.row_sums + (b * a.heads + h) * a.queries;
        for (int first_query = 0; first_query < a.queries; first_query += Tile::size) {
            const KeyRange seen = BlockView(a, b, first_query, Tile::size).any;
            if (seen.end <= first_key || seen.begin >= first_key + Tile::size) continue;
            __syncthreads();
            tiles.load_queries(a, g, b, h, first_query);
            __syncthreads();
            TileGradient<Tile> tile;
            tile.compute(a, g, b, h, first_query, first_key, tiles.queries, tiles.keys, tiles.dout, tiles.values,
                         [&](int i) { return row_sums[i]; });
#pragma unroll
            for (int r = 0; r < per; ++r)
                for (int c = 0; c < per; ++c) {
                    const int at = (thread_x() * per + c) * Tile::score_pitch + thread_y() * per + r;
                    p[at] = tile.p[r][c];
                    ds[at] = tile.ds[r][c];
                }
            __syncthreads();
            accumulate<Tile, false>(p, tiles.dout, a.value_head, dv);
            accumulate<Tile, false>(ds, tiles.queries, a.head, dk);
        }
    }
#pragma unroll
    for (int r = 0; r < per; ++r) {
        const int j = first_key + thread_y() * per + r;
        if (j >= a.keys) continue;
        store_row<Tile>(dk, r, a.scale, a.head, g.dk + g.dk_strides.at(b, j, group));
        store_row<Tile>(dv, r, 1, a.value_head, g.dv + g.dv_strides.at(b, j, group));
    }
}

// A tile of the bias's gradient: over all samples, heads and tiles of queries and keys that it is broadcast to.
template <class T, int most_head>
__global__ __launch_bounds__(attention_threads) void differentiate_bias(AttentionCall a, GradientTask<T> g) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    __shared__ float row_sums[Tile::size];
    const GradientTiles<Tile> tiles(a, shared);
    const std::int64_t* const sizes = g.dbias_sizes;
    struct Range {
        int begin, end;
    };
    auto range_of = [](std::int64_t size, int at, int all) { return size == 1 ? Range{0, all} : Range{at, at + 1}; };
    const int head_index = static_cast<int>(blockIdx.z);
    const Range samples = range_of(sizes[0], head_index / static_cast<int>(sizes[1]), static_cast<int>(a.batch));
    const Range heads = range_of(sizes[1], head_index % static_cast<int>(sizes[1]), a.heads);
    const Range query_tiles =
        range_of(sizes[2], static_cast<int>(blockIdx.y), (a.queries + Tile::size - 1) / Tile::size);
    const Range key_tiles = range_of(sizes[3], static_cast<int>(blockIdx.x), (a.keys + Tile::size - 1) / Tile::size);

    float sums[per][per] = {};
    for (std::int64_t b = samples.begin; b < samples.end; ++b)
        for (int h = heads.begin; h < heads.end; ++h)
            for (int m = query_tiles.begin; m < query_tiles.end; ++m) {
                const int first_query = m * Tile::size;
                const KeyRange seen = BlockView(a, b, first_query, Tile::size).blocks(Tile::size);
                const int begin = max(key_tiles.begin, seen.begin), end = min(key_tiles.end, seen.end);
                if (begin >= end) continue;
                __syncthreads();
                tiles.load_queries(a, g, b, h, first_query);
                for (int i = static_cast<int>(threadIdx.x) / warp_size; i < Tile::size;
                     i += attention_threads / warp_size) {
                    const float sum = first_query + i < a.queries ? row_product(a, g, b, h, first_query + i) : 0.0f;
                    if (threadIdx.x % warp_size == 0) row_sums[i] = sum;
                }
                for (int n = begin; n < end; ++n) {
                    __syncthreads();
                    tiles.load_keys(a, g, b, a.key_head_of(h), n * Tile::size);
                    __syncthreads();
                    TileGradient<Tile> tile;
                    tile.compute(a, g, b, h, first_query, n * Tile::size, tiles.queries, tiles.keys, tiles.dout,
                                 tiles.values, [&](int i) { return row_sums[i - first_query]; });
#pragma unroll
                    for (int r = 0; r < per; ++r)
                        for (int c = 0; c < per; ++c) sums[r][c] += tile.capped[r][c];
                }
            }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < per; ++r)
        for (int c = 0; c < per; ++c)
            tiles.scores[(thread_y() * per + r) * Tile::score_pitch + thread_x() * per + c] = sums[r][c];
    __syncthreads();
    // Summed over the tile along the dimensions that are broadcast.
    const int rows = sizes[2] == 1 ? 1 : Tile::size, columns = sizes[3] == 1 ? 1 : Tile::size;
    float* const to = g.dbias + head_index / sizes[1] * g.dbias_strides[0] + head_index % sizes[1] * g.dbias_strides[1];
    for (int n = static_cast<int>(threadIdx.x); n < rows * columns; n += attention_threads) {
        const int row = n / columns, column = n % columns;
        float sum = 0;
        for (int r = row; r < (rows == 1 ? Tile::size : row + 1); ++r)
            for (int c = column; c < (columns == 1 ? Tile::size : column + 1); ++c)
                sum += tiles.scores[r * Tile::score_pitch + c];
        const std::int64_t i = rows == 1 ? 0 : query_tiles.begin * Tile::size + row;
        const std::int64_t j = columns == 1 ? 0 : key_tiles.begin * Tile::size + column;
        if (i < sizes[2] && j < sizes[3]) to[i * g.dbias_strides[2] + j * g.dbias_strides[3]] = sum;
    }
}

bool gradient_fits(const KernelRequest& request, std::int64_t pack) {
    bool fits = true;
    for (std::size_t i = 0; i < 4; ++i) fits = fits && heads_fit(request.inputs[i], pack);
    return fits;
}

template <class T>
class PlainBiasGradient : public BiasGradient {
  public:
    PlainBiasGradient(const KernelRequest& request, const Gpu& gpu)
        : task_(request), output_(*AttentionRequest(request).dbias), fits_(gradient_fits(request, Pack<T>::size)) {
        const Operand& output = request.outputs[output_];
        for (int d = 0; d < 4; ++d)
            task_.dbias_sizes[d] = output.type.shape[d], task_.dbias_strides[d] = output.strides[d];
        for_head(largest_head(AttentionRequest(request).call), [&]<int most_head>() {
            check(cudaFuncSetAttribute(differentiate_bias<T, most_head>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       gpu.shared_bytes - 1024),
                  "attention_gradient");
        });
    }

    void run(const AttentionCall& call, const Launch& launch) const override {
        AttentionCall a = call;
        GradientTask<T> g = task_;
        g.bind(launch);
        g.dbias = launch.out<float>(output_);
        a.packs = fits_ && aligned({g.dout, g.q, g.k, g.v});
        for_head(largest_head(a), [&]<int most_head>() {
            using Tile = AttentionTile<most_head>;
            auto tiles = [](std::int64_t size) { return static_cast<unsigned>(divide_up(size, Tile::size)); };
            const dim3 blocks(tiles(g.dbias_sizes[3]), tiles(g.dbias_sizes[2]),
                              static_cast<unsigned>(g.dbias_sizes[0] * g.dbias_sizes[1]));
            differentiate_bias<T, most_head>
                <<<blocks, attention_threads, tile_bytes<Tile>(a, 1), stream_of(launch)>>>(a, g);
        });
        launched("attention_gradient");
    }

  private:
    GradientTask<T> task_;
    std::size_t output_;
    bool fits_;
};

class PlainAttentionGradient : public Kernel {
  public:
    PlainAttentionGradient(const KernelRequest& request, const Gpu& gpu)
        : request_(request), task_(request), fits_(gradient_fits(request, Pack<float>::size)) {
        for_head(largest_head(request_.call), [&]<int most_head>() {
            for (auto* kernel : {differentiate_queries<most_head>, differentiate_keys<most_head>})
                check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gpu.shared_bytes),
                      "attention_gradient");
        });
        if (request_.dbias) bias_ = make_bias_gradient(request, gpu);
    }

    Bytes workspace() const override { return {documents_at() + request_.document_bytes()}; }

    void run(const Launch& l) const override {
        AttentionCall a = request_.at(l, l.workspace + documents_at());
        GradientTask<float> g = task_;
        g.bind(l);
        g.row_sums = reinterpret_cast<float*>(l.workspace);
        a.packs = fits_ && aligned({g.dout, g.q, g.k, g.v});
        const cudaStream_t stream = stream_of(l);
        multiply_out<float><<<static_cast<unsigned>(divide_up(rows(), 256 / warp_size)), 256, 0, stream>>>(a, g);
        launched("attention_gradient");
        for_head(largest_head(a), [&]<int most_head>() {
            using Tile = AttentionTile<most_head>;
            auto blocks = [&](int rows, int heads) {
                return dim3(static_cast<unsigned>(divide_up(rows, Tile::size)), static_cast<unsigned>(heads),
                            static_cast<unsigned>(a.batch));
            };
            differentiate_queries<most_head>
                <<<blocks(a.queries, a.heads), attention_threads, tile_bytes<Tile>(a, 1), stream>>>(a, g);
            launched("attention_gradient");
            differentiate_keys<most_head>
                <<<blocks(a.keys, a.key_heads), attention_threads, tile_bytes<Tile>(a, 2), stream>>>(a, g);
            launched("attention_gradient");
        });
        if (bias_) bias_->run(a, l);
        if (!request_.dsinks) return;
        SinkGradientTask task{.lse = g.lse,
                              .row_sums = g.row_sums,
                              .rows_of_head = a.queries,
                              .gradient = l.out<float>(*request_.dsinks)};
        for (int d = 0; d < 3; ++d) task.lse_strides[d] = g.lse_strides[d];
        launch_sink_gradient(a, task, stream);
        launched("attention_gradient");
    }

  private:
    std::int64_t rows() const { return request_.call.batch * request_.call.heads * request_.call.queries; }
    std::int64_t documents_at() const { return divide_up(rows() * 4, 256) * 256; }

    AttentionRequest request_;
    GradientTask<float> task_;
    bool fits_;
    std::unique_ptr<BiasGradient> bias_;
};

} // namespace

std::unique_ptr<Kernel> make_plain_attention_gradient(const KernelRequest& request, const Gpu& gpu) {
    if (request.inputs[1].type.dtype != DType::float32) fail_unsupported(backend_name, request);
    return std::make_unique<PlainAttentionGradient>(request, gpu);
}

std::unique_ptr<BiasGradient> make_bias_gradient(const KernelRequest& request, const Gpu& gpu) {
    return for_floating(request, request.inputs[1].type.dtype, [&]<class T>() -> std::unique_ptr<BiasGradient> {
        return std::make_unique<PlainBiasGradient<T>>(request, gpu);
    });
}

} // namespace tutti::backend::cuda

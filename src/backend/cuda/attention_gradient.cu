// The gradient of attention, from the scores computed again:
//   p_ij = exp(s_ij - lse_i), ds_ij = p_ij (d_ij (do_i v_j) - do_i o_i), d_ij what dropout multiplies with;
//   dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i;  dv_j = sum_i p_ij d_ij do_i
// First the products do_i o_i; then dq by tiles of queries; then dk and dv by tiles of keys, over all heads that a key
// head serves. Each result is summed by one block, in order.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tiles.h"

namespace tutti::backend::cuda {
namespace {

constexpr float infinity = __builtin_inff();

template <class T>
struct GradientTask {
    AttentionTask a;
    const T *dout = nullptr, *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;
    const float* lse = nullptr;
    float* delta = nullptr; // do_i o_i, [b, h, t]
    T *dq = nullptr, *dk = nullptr, *dv = nullptr;
    HeadStrides dout_strides = {}, out_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};
    std::int64_t lse_strides[3] = {};
};

// One warp for each row.
template <class T>
__global__ __launch_bounds__(256) void multiply_out(GradientTask<T> g) {
    const AttentionTask& a = g.a;
    const std::int64_t n = std::int64_t{blockIdx.x} * (256 / warp_size) + threadIdx.x / warp_size;
    if (n >= a.batch * a.heads * a.queries) return;
    const std::int64_t i = n % a.queries, h = n / a.queries % a.heads, b = n / a.queries / a.heads;
    const T *dout = g.dout + g.dout_strides.at(b, i, h), *out = g.out + g.out_strides.at(b, i, h);
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x) % warp_size; c < a.value_head; c += warp_size)
        sum += to_float(dout[c]) * to_float(out[c]);
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) g.delta[n] = sum;
}

// The probabilities of a tile, as dropout leaves them, and the gradient of its scores.
template <class Tile>
struct TileGradient {
    float p[Tile::per][Tile::per], ds[Tile::per][Tile::per];

    template <class T>
    __device__ void compute(const GradientTask<T>& g, std::int64_t b, int h, int first_query, int first_key,
                            const float* queries, const float* keys, const float* dout, const float* values) {
        const AttentionTask& a = g.a;
        multiply<Tile>(queries, keys, a.head, p);
        finish_scores<Tile>(a, b, h, first_query, first_key, p);
        multiply<Tile>(dout, values, a.value_head, ds);
        const unsigned kept = draw_kept<Tile>(a, b, h, first_query, first_key);
#pragma unroll
        for (int r = 0; r < Tile::per; ++r) {
            // Queries beyond the end, and those that saw no key, have probabilities of zero.
            const std::int64_t i = first_query + thread_y() * Tile::per + r;
            float lse = infinity, delta = 0;
            if (i < a.queries) {
                lse = g.lse[b * g.lse_strides[0] + h * g.lse_strides[1] + i * g.lse_strides[2]];
                delta = g.delta[(b * a.heads + h) * a.queries + i];
            }
            if (lse == -infinity) lse = infinity;
#pragma unroll
            for (int c = 0; c < Tile::per; ++c) {
                const float probability = attention_exponential<T>(p[r][c] - lse);
                const float factor = (kept >> (r * Tile::per + c)) & 1 ? a.kept_scale : 0.0f;
                p[r][c] = probability * factor;
                ds[r][c] = probability * (ds[r][c] * factor - delta);
            }
        }
    }
};

template <class Tile>
std::size_t tile_bytes(const AttentionTask& a, int score_tiles) {
    const int floats =
        Tile::size * (2 * pitch_of(a.head) + 2 * pitch_of(a.value_head) + score_tiles * Tile::score_pitch);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

// The tiles of a block, cut from its shared memory.
template <class Tile>
struct GradientTiles {
    float *queries, *keys, *dout, *values, *scores;

    __device__ GradientTiles(const AttentionTask& a, float4* shared) {
        queries = reinterpret_cast<float*>(shared);
        keys = queries + Tile::size * pitch_of(a.head);
        dout = keys + Tile::size * pitch_of(a.head);
        values = dout + Tile::size * pitch_of(a.value_head);
        scores = values + Tile::size * pitch_of(a.value_head);
    }
    template <class T>
    __device__ void load_queries(const GradientTask<T>& g, std::int64_t b, int h, int first) const {
        const int count = g.a.queries - first;
        load_tile<Tile, false>(g.q + g.a.q.at(b, first, h), g.a.q.row, count, g.a.head, g.a.packs, queries);
        load_tile<Tile, false>(g.dout + g.dout_strides.at(b, first, h), g.dout_strides.row, count, g.a.value_head,
                               g.a.packs, dout);
    }
    template <class T>
    __device__ void load_keys(const GradientTask<T>& g, std::int64_t b, int group, int first) const {
        const int count = g.a.keys - first;
        load_tile<Tile, true>(g.k + g.a.k.at(b, first, group), g.a.k.row, count, g.a.head, g.a.packs, keys);
        load_tile<Tile, true>(g.v + g.a.v.at(b, first, group), g.a.v.row, count, g.a.value_head, g.a.packs, values);
    }
};

template <class T, int most_head>
__global__ __launch_bounds__(attention_threads) void differentiate_queries(GradientTask<T> g) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    const AttentionTask& a = g.a;
    const GradientTiles<Tile> tiles(a, shared);
    const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tile::size; // those with most keys first
    const int h = static_cast<int>(blockIdx.y);
    const std::int64_t b = blockIdx.z;
    tiles.load_queries(g, b, h, first_query);
    HeadSums<Tile> dq = {};
    const int seen = a.causal ? min(a.keys, first_query + Tile::size + a.keys - a.queries) : a.keys;
    for (int first_key = 0; first_key < seen; first_key += Tile::size) {
        __syncthreads();
        tiles.load_keys(g, b, a.group_of(h), first_key);
        __syncthreads();
        TileGradient<Tile> tile;
        tile.compute(g, b, h, first_query, first_key, tiles.queries, tiles.keys, tiles.dout, tiles.values);
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

template <class T, int most_head>
__global__ __launch_bounds__(attention_threads) void differentiate_keys(GradientTask<T> g) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    const AttentionTask& a = g.a;
    const GradientTiles<Tile> tiles(a, shared);
    float *p = tiles.scores, *ds = p + Tile::size * Tile::score_pitch; // keys in rows
    const int first_key = static_cast<int>(blockIdx.x) * Tile::size, group = static_cast<int>(blockIdx.y);
    const std::int64_t b = blockIdx.z;
    tiles.load_keys(g, b, group, first_key);
    HeadSums<Tile> dk = {}, dv = {};
    const int members = a.heads / a.groups;
    const int seen_from = a.causal ? max(0, first_key - (a.keys - a.queries)) / Tile::size * Tile::size : 0;
    for (int h = group * members; h < (group + 1) * members; ++h)
        for (int first_query = seen_from; first_query < a.queries; first_query += Tile::size) {
            __syncthreads();
            tiles.load_queries(g, b, h, first_query);
            __syncthreads();
            TileGradient<Tile> tile;
            tile.compute(g, b, h, first_query, first_key, tiles.queries, tiles.keys, tiles.dout, tiles.values);
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
#pragma unroll
    for (int r = 0; r < per; ++r) {
        const int j = first_key + thread_y() * per + r;
        if (j >= a.keys) continue;
        store_row<Tile>(dk, r, a.scale, a.head, g.dk + g.dk_strides.at(b, j, group));
        store_row<Tile>(dv, r, 1, a.value_head, g.dv + g.dv_strides.at(b, j, group));
    }
}

template <class T>
class OwnAttentionGradient : public Kernel {
  public:
    OwnAttentionGradient(const KernelRequest& request, const Gpu& gpu) : task_{.a = AttentionTask(request, 1, mask)} {
        task_.dout_strides = HeadStrides(request.inputs[0]), task_.out_strides = HeadStrides(request.inputs[4]);
        task_.dq_strides = HeadStrides(request.outputs[0]), task_.dk_strides = HeadStrides(request.outputs[1]);
        task_.dv_strides = HeadStrides(request.outputs[2]);
        for (int d = 0; d < 3; ++d) task_.lse_strides[d] = request.inputs[5].strides[d];
        for (std::size_t i = 0; i < 4; ++i) fits_ = fits_ && heads_fit(request.inputs[i], Pack<T>::size);
        for_head(task_.a.largest_head(), [&]<int most_head>() {
            for (auto* kernel : {differentiate_queries<T, most_head>, differentiate_keys<T, most_head>})
                check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gpu.shared_bytes),
                      "attention gradient");
        });
    }

    Bytes workspace() const override { return {rows() * static_cast<std::int64_t>(sizeof(float))}; }

    void run(const Launch& l) const override {
        GradientTask<T> g = task_;
        AttentionTask& a = g.a;
        a.start(l, mask);
        g.dout = l.in<T>(0), g.q = l.in<T>(1), g.k = l.in<T>(2), g.v = l.in<T>(3), g.out = l.in<T>(4);
        g.lse = l.in<float>(5);
        g.delta = reinterpret_cast<float*>(l.workspace);
        g.dq = l.out<T>(0), g.dk = l.out<T>(1), g.dv = l.out<T>(2);
        a.packs = fits_ && aligned({g.dout, g.q, g.k, g.v});
        const cudaStream_t stream = stream_of(l);
        multiply_out<T><<<static_cast<unsigned>(divide_up(rows(), 256 / warp_size)), 256, 0, stream>>>(g);
        launched("attention_gradient");
        for_head(a.largest_head(), [&]<int most_head>() {
            using Tile = AttentionTile<most_head>;
            auto blocks = [&](int rows, int heads) {
                return dim3(static_cast<unsigned>(divide_up(rows, Tile::size)), static_cast<unsigned>(heads),
                            static_cast<unsigned>(a.batch));
            };
            differentiate_queries<T, most_head>
                <<<blocks(a.queries, a.heads), attention_threads, tile_bytes<Tile>(a, 1), stream>>>(g);
            launched("attention_gradient");
            differentiate_keys<T, most_head>
                <<<blocks(a.keys, a.groups), attention_threads, tile_bytes<Tile>(a, 2), stream>>>(g);
            launched("attention_gradient");
        });
    }

  private:
    static constexpr std::size_t mask = 6; // its place among the inputs
    std::int64_t rows() const { return task_.a.batch * task_.a.heads * task_.a.queries; }

    GradientTask<T> task_;
    bool fits_ = true;
};

} // namespace

std::unique_ptr<Kernel> make_own_attention_gradient(const KernelRequest& request, const Gpu& gpu) {
    return for_floating(request, request.inputs[1].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<OwnAttentionGradient<T>>(request, gpu);
    });
}

} // namespace tutti::backend::cuda

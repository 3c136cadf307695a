// Attention of a tile of queries against all keys they see, a tile of keys at a time, in the manner of Flash Attention:
// P = exp(S - running maximum), and what is already summed shrinks as the maximum grows.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tiles.h"

namespace tutti::backend::cuda {
namespace {

constexpr float infinity = __builtin_inff();

// The maximum, or sum, over the half-warp that has a row.
__device__ float row_max(float x) {
    for (int offset = attention_side / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
__device__ float row_sum(float x) {
    for (int offset = attention_side / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <class Tile>
std::size_t forward_bytes(const AttentionTask& a) {
    const int floats = Tile::size * (2 * pitch_of(a.head) + pitch_of(a.value_head) + Tile::score_pitch);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

template <class T, int most_head>
__global__ __launch_bounds__(attention_threads) void attend(AttentionTask a, const T* q, const T* k, const T* v, T* out,
                                                            HeadStrides out_strides, float* lse) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    float* queries = reinterpret_cast<float*>(shared);
    float* keys = queries + Tile::size * pitch_of(a.head);
    float* values = keys + Tile::size * pitch_of(a.head);
    float* weights = values + Tile::size * pitch_of(a.value_head);

    const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tile::size; // those with most keys first
    const int h = static_cast<int>(blockIdx.y), group = a.group_of(h);
    const std::int64_t b = blockIdx.z;
    load_tile<Tile, false>(q + a.q.at(b, first_query, h), a.q.row, a.queries - first_query, a.head, a.packs, queries);

    HeadSums<Tile> sums = {};
    float most[per], sum[per];
    for (int r = 0; r < per; ++r) most[r] = -infinity, sum[r] = 0;
    const int seen = a.causal ? min(a.keys, first_query + Tile::size + a.keys - a.queries) : a.keys;
    for (int first_key = 0; first_key < seen; first_key += Tile::size) {
        __syncthreads(); // the last tile of keys is used up
        load_tile<Tile, true>(k + a.k.at(b, first_key, group), a.k.row, a.keys - first_key, a.head, a.packs, keys);
        load_tile<Tile, true>(v + a.v.at(b, first_key, group), a.v.row, a.keys - first_key, a.value_head, a.packs,
                              values);
        __syncthreads();
        float scores[per][per];
        multiply<Tile>(queries, keys, a.head, scores);
        finish_scores<Tile>(a, b, h, first_query, first_key, scores);
        const unsigned kept = draw_kept<Tile>(a, b, h, first_query, first_key);
#pragma unroll
        for (int r = 0; r < per; ++r) {
            float largest = scores[r][0];
            for (int c = 1; c < per; ++c) largest = fmaxf(largest, scores[r][c]);
            largest = fmaxf(most[r], row_max(largest));
            const float base = largest == -infinity ? 0.0f : largest; // nothing seen yet: e^(-inf - 0) = 0
            const float shrink = attention_exponential<T>(most[r] - base);
            most[r] = largest;
            sum[r] *= shrink;
            for (int c = 0; c < per; ++c) {
                const float p = attention_exponential<T>(scores[r][c] - base);
                sum[r] += p;
                weights[(thread_y() * per + r) * Tile::score_pitch + thread_x() * per + c] =
                    (kept >> (r * per + c)) & 1 ? p * a.kept_scale : 0.0f;
            }
            for (float4& four : sums[r]) four = {four.x * shrink, four.y * shrink, four.z * shrink, four.w * shrink};
        }
        __syncwarp(); // a row of weights is written and read by one half-warp
        accumulate<Tile, true>(weights, values, a.value_head, sums);
    }
#pragma unroll
    for (int r = 0; r < per; ++r) {
        const int i = first_query + thread_y() * per + r;
        const float total = row_sum(sum[r]);
        if (i >= a.queries) continue;
        store_row<Tile>(sums, r, total == 0 ? 0.0f : 1 / total, a.value_head, out + out_strides.at(b, i, h));
        if (thread_x() == 0) lse[(b * a.heads + h) * a.queries + i] = total == 0 ? -infinity : most[r] + logf(total);
    }
}

template <class T>
class OwnAttention : public Kernel {
  public:
    OwnAttention(const KernelRequest& request, const Gpu& gpu) : task_(request, 0, mask), out_(request.outputs[0]) {
        for (std::size_t i = 0; i < 3; ++i) fits_ = fits_ && heads_fit(request.inputs[i], Pack<T>::size);
        for_head(task_.largest_head(), [&]<int most_head>() {
            check(cudaFuncSetAttribute(attend<T, most_head>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       gpu.shared_bytes),
                  "attention");
        });
    }

    void run(const Launch& l) const override {
        AttentionTask a = task_;
        a.start(l, mask);
        const T *q = l.in<T>(0), *k = l.in<T>(1), *v = l.in<T>(2);
        a.packs = fits_ && aligned({q, k, v});
        for_head(a.largest_head(), [&]<int most_head>() {
            using Tile = AttentionTile<most_head>;
            const dim3 blocks(static_cast<unsigned>(divide_up(a.queries, Tile::size)), static_cast<unsigned>(a.heads),
                              static_cast<unsigned>(a.batch));
            attend<T, most_head><<<blocks, attention_threads, forward_bytes<Tile>(a), stream_of(l)>>>(
                a, q, k, v, l.out<T>(0), out_, l.out<float>(1));
        });
        launched("attention");
    }

  private:
    static constexpr std::size_t mask = 3; // its place among the inputs
    AttentionTask task_;
    HeadStrides out_;
    bool fits_ = true;
};

} // namespace

std::unique_ptr<Kernel> make_own_attention(const KernelRequest& request, const Gpu& gpu) {
    return for_floating(request, request.inputs[0].type.dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
        return std::make_unique<OwnAttention<T>>(request, gpu);
    });
}

} // namespace tutti::backend::cuda

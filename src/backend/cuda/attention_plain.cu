// Attention of a tile of queries against all keys they see, a tile of keys at a time, in the manner of Flash Attention:
// P = exp(S - running maximum), and what is already summed shrinks as the maximum grows.
#include "backend/cuda/attention_plain.h"
#include "backend/cuda/attention_plain_tiles.h"

namespace tutti::backend::cuda {
namespace {

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
std::size_t forward_bytes(const AttentionCall& a) {
    const int floats = Tile::size * (2 * pitch_of(a.head) + pitch_of(a.value_head) + Tile::score_pitch);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

template <int most_head>
__global__ __launch_bounds__(attention_threads) void attend_plainly(AttentionCall a, const float* q, const float* k,
                                                                    const float* v, float* out, float* lse) {
    using Tile = AttentionTile<most_head>;
    constexpr int per = Tile::per;
    extern __shared__ float4 shared[];
    float* queries = reinterpret_cast<float*>(shared);
    float* keys = queries + Tile::size * pitch_of(a.head);
    float* values = keys + Tile::size * pitch_of(a.head);
    float* weights = values + Tile::size * pitch_of(a.value_head);

    const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tile::size; // those with most keys first
    const int h = static_cast<int>(blockIdx.y), group = a.key_head_of(h);
    const std::int64_t b = blockIdx.z;
    load_tile<Tile, false>(q + a.q.at(b, first_query, h), a.q.row, a.queries - first_query, a.head, a.packs, queries);

    HeadSums<Tile> sums = {};
    float most[per], sum[per];
    for (int r = 0; r < per; ++r) most[r] = -infinity, sum[r] = 0;
    const KeyRange seen = BlockView(a, b, first_query, Tile::size).blocks(Tile::size);
    for (int block = seen.begin; block < seen.end; ++block) {
        const int first_key = block * Tile::size;
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
            const float shrink = expf(most[r] - base);
            most[r] = largest;
            sum[r] *= shrink;
            for (int c = 0; c < per; ++c) {
                const float p = expf(scores[r][c] - base);
                sum[r] += p;
                weights[(thread_y() * per + r) * Tile::score_pitch + thread_x() * per + c] =
                    (kept >> (r * per + c)) & 1 ? p * a.dropout.kept_scale : 0.0f;
            }
            for (float4& four : sums[r]) four = {four.x * shrink, four.y * shrink, four.z * shrink, four.w * shrink};
        }
        __syncwarp(); // a row of weights is written and read by one half-warp
        accumulate<Tile, true>(weights, values, a.value_head, sums);
    }
#pragma unroll
    for (int r = 0; r < per; ++r) {
        const int i = first_query + thread_y() * per + r;
        float total = row_sum(sum[r]), shrink = 1;
        if (i >= a.queries) continue;
        if (a.sinks != nullptr) { // one more score, of no value
            const float sink = a.sink(h), before = total == 0 ? sink : most[r];
            most[r] = fmaxf(before, sink);
            shrink = expf(before - most[r]);
            total = total * shrink + expf(sink - most[r]);
        }
        store_row<Tile>(sums, r, total == 0 ? 0.0f : shrink / total, a.value_head, out + a.out.at(b, i, h));
        if (thread_x() == 0) lse[(b * a.heads + h) * a.queries + i] = total == 0 ? -infinity : most[r] + logf(total);
    }
}

class PlainAttention : public Kernel {
  public:
    PlainAttention(const KernelRequest& request, const Gpu& gpu) : request_(request) {
        for (std::size_t i = 0; i < 3; ++i) fits_ = fits_ && heads_fit(request.inputs[i], Pack<float>::size);
        for_head(largest_head(request_.call), [&]<int most_head>() {
            check(cudaFuncSetAttribute(attend_plainly<most_head>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       gpu.shared_bytes),
                  "attention");
        });
    }

    Bytes workspace() const override { return {request_.document_bytes()}; }

    void run(const Launch& l) const override {
        AttentionCall a = request_.at(l, l.workspace);
        const float *q = l.in<float>(0), *k = l.in<float>(1), *v = l.in<float>(2);
        a.packs = fits_ && aligned({q, k, v});
        for_head(largest_head(a), [&]<int most_head>() {
            using Tile = AttentionTile<most_head>;
            const dim3 blocks(static_cast<unsigned>(divide_up(a.queries, Tile::size)), static_cast<unsigned>(a.heads),
                              static_cast<unsigned>(a.batch));
            attend_plainly<most_head><<<blocks, attention_threads, forward_bytes<Tile>(a), stream_of(l)>>>(
                a, q, k, v, l.out<float>(0), l.out<float>(1));
        });
        launched("attention");
    }

  private:
    AttentionRequest request_;
    bool fits_ = true;
};

} // namespace

std::unique_ptr<Kernel> make_plain_attention(const KernelRequest& request, const Gpu& gpu) {
    if (request.inputs[0].type.dtype != DType::float32) fail_unsupported(backend_name, request);
    return std::make_unique<PlainAttention>(request, gpu);
}

} // namespace tutti::backend::cuda

#include "backend/cuda/attention_rows.h"

#include "backend/cuda/attention_view.h"

namespace tutti::backend::cuda {
namespace {

constexpr int threads = 256, warp = 32;

__device__ int first_from(const std::int32_t* keys, std::int64_t stride, int count, std::int64_t value) {
    int low = 0, high = count; // the first that is not less
    while (low < high) {
        const int middle = (low + high) / 2;
        if (keys[middle * stride] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

__global__ __launch_bounds__(threads) void find_documents(DocumentTask task, int2* ranges) {
    const std::int64_t n = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (n >= task.batch * task.queries) return;
    const std::int64_t b = n / task.queries, i = n % task.queries;
    const std::int64_t document = task.of_queries[b * task.query_strides[0] + i * task.query_strides[1]];
    const std::int32_t* const keys = task.of_keys + b * task.key_strides[0];
    ranges[n] = {first_from(keys, task.key_strides[1], task.keys, document),
                 first_from(keys, task.key_strides[1], task.keys, document + 1)};
}

__device__ float product(std::uint32_t a, std::uint32_t b) { // of two pairs of bf16
    return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
           __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

// `lanes` threads for each row: one for eight elements.
template <int lanes>
__global__ __launch_bounds__(threads) void prepare_rows(AttentionCall a, RowTask r, BackwardData g) {
    const std::int64_t n = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / lanes;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    const std::int64_t of_head = r.rows_of_head;
    if (n >= a.all_heads() * of_head) return;
    const int i = static_cast<int>(n % of_head), bh = static_cast<int>(n / of_head);
    const std::int64_t b = bh / a.heads, h = bh % a.heads;
    float sum = 0;
    if (i < a.queries) {
        const bf16 *dout = r.dout + r.dout_strides.at(b, i, h), *out = r.out + r.out_strides.at(b, i, h);
        if (r.packs) {
            if (8 * lane < a.value_head) {
                const uint4 x = *reinterpret_cast<const uint4*>(dout + 8 * lane);
                const uint4 y = *reinterpret_cast<const uint4*>(out + 8 * lane);
                sum = product(x.x, y.x) + product(x.y, y.y) + product(x.z, y.z) + product(x.w, y.w);
            }
        } else {
            for (int c = lane; c < a.value_head; c += lanes)
                sum += __bfloat162float(dout[c]) * __bfloat162float(out[c]);
        }
    }
    // All lanes of a row have left, or none.
    const unsigned together = 0xffffffffu >> (warp - lanes) << (threadIdx.x % warp / lanes * lanes);
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(together, sum, offset);

    const int first = i / r.query_block * r.query_block;
    const KeyRange keys = BlockView(a, b, first, r.query_block).blocks(r.key_block);
    if (keys.begin == keys.end && i < a.queries) { // nobody adds to dq
        bf16* const dq = g.dq + g.dq_strides.at(b, i, h);
        for (int c = lane; c < a.head; c += lanes) dq[c] = __float2bfloat16_rn(0.0f);
    }
    if (i == first)
        for (int w = lane; w < r.warps; w += lanes) g.turns[(n / r.query_block) * r.warps + w] = 0;
    if (lane != 0) return;
    // Rows beyond the end, and those that saw no key, have probabilities of zero.
    float lse = -__builtin_inff();
    if (i < a.queries) lse = r.lse[b * r.lse_strides[0] + h * r.lse_strides[1] + i * r.lse_strides[2]];
    r.scaled_lse[n] = lse == -__builtin_inff() ? __builtin_inff() : lse * log2_e;
    r.row_sums[n] = sum;
    if (n == 0) g.next[0] = 0, g.next[1] = 0;
}

__global__ __launch_bounds__(threads) void sum_sink_gradient(AttentionCall a, SinkGradientTask g) {
    __shared__ float sums[threads / warp];
    const int h = static_cast<int>(blockIdx.x);
    const float sink = a.sink(h);
    float sum = 0;
    for (std::int64_t b = 0; b < a.batch; ++b)
        for (std::int64_t i = threadIdx.x; i < a.queries; i += threads) {
            const float lse = g.lse[b * g.lse_strides[0] + h * g.lse_strides[1] + i * g.lse_strides[2]];
            sum -= expf(sink - lse) * g.row_sums[(b * a.heads + h) * g.rows_of_head + i];
        }
    for (int offset = warp / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % warp == 0) sums[threadIdx.x / warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < threads / warp; ++w) sum += sums[w];
    g.gradient[h] = sum;
}

unsigned blocks_for(std::int64_t work) { return static_cast<unsigned>((work + threads - 1) / threads); }

} // namespace

void launch_documents(const DocumentTask& task, int2* ranges, cudaStream_t stream) {
    find_documents<<<blocks_for(task.batch * task.queries), threads, 0, stream>>>(task, ranges);
}

void launch_rows(const AttentionCall& call, const RowTask& rows, const BackwardData& data, cudaStream_t stream) {
    const std::int64_t count = call.all_heads() * rows.rows_of_head;
    if (call.value_head <= 64)
        prepare_rows<8><<<blocks_for(count * 8), threads, 0, stream>>>(call, rows, data);
    else if (call.value_head <= 128)
        prepare_rows<16><<<blocks_for(count * 16), threads, 0, stream>>>(call, rows, data);
    else
        prepare_rows<32><<<blocks_for(count * 32), threads, 0, stream>>>(call, rows, data);
}

void launch_sink_gradient(const AttentionCall& call, const SinkGradientTask& task, cudaStream_t stream) {
    sum_sink_gradient<<<static_cast<unsigned>(call.heads), threads, 0, stream>>>(call, task);
}

} // namespace tutti::backend::cuda

#include "backend/cuda/attention_launch.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

int divided_up(int a, int b) { return (a + b - 1) / b; }

// So many that what they share stays in half of the cache, but enough for the GPU to be busy.
int heads_at_once(std::int64_t bytes_of_head, std::int64_t l2_bytes) {
    constexpr std::int64_t fewest = 32, most = 4096;
    return static_cast<int>(std::clamp(l2_bytes / 2 / std::max<std::int64_t>(bytes_of_head, 1), fewest, most));
}

// Blocks that go forwards start one step behind each other where they add to the same dq, and wait for so long; those
// that go backwards do not, with a causal mask, but the longest of them start last. Whichever wastes less.
bool goes_backwards(const BackwardVariant& variant, const AttentionCall& call, int multiprocessors) {
    if (!call.causal) return false;
    const double heads = static_cast<double>(call.batch) * call.key_heads;
    const double blocks = divided_up(call.keys, variant.keys), at_a_time = 2.0 * multiprocessors;
    const double together = std::min(blocks, at_a_time / std::min(heads, double(call.heads_at_once)));
    const double steps = static_cast<double>(call.group()) * divided_up(call.queries, variant.queries);
    return together / steps > at_a_time / (heads * blocks);
}

template <class Kernels>
cudaError_t allow_for(const Kernels& kernels, int bytes) {
    for (const auto kernel : kernels) {
        if (kernel == nullptr) continue;
        const cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

} // namespace

cudaError_t allow_shared_memory(const ForwardVariant& variant) {
    return allow_for(variant.kernels, variant.shared_bytes);
}
cudaError_t allow_shared_memory(const BackwardVariant& variant) {
    const cudaError_t status = allow_for(variant.first_kernels, variant.shared_bytes);
    return status == cudaSuccess ? allow_for(variant.kernels, variant.shared_bytes) : status;
}

AttentionExtras extras_of(const AttentionCall& call) {
    if (call.soft_cap > 0 || call.mask.data != nullptr || call.bias.data != nullptr || call.scale <= 0)
        return AttentionExtras::all;
    return call.dropout.on ? AttentionExtras::dropout : AttentionExtras::none;
}

void launch_forward(const ForwardVariant& variant, AttentionCall call, const ForwardData& data, std::int64_t l2_bytes,
                    cudaStream_t stream) {
    const std::int64_t sizes = 2 * (call.head + call.value_head);
    call.heads_at_once = heads_at_once(sizes * (call.keys / call.group() + call.queries), l2_bytes);
    const ForwardKernel kernel = variant.kernels[static_cast<std::size_t>(extras_of(call))];
    const auto blocks = static_cast<unsigned>(divided_up(call.queries, variant.queries) * call.all_heads());
    kernel<<<blocks, static_cast<unsigned>(variant.threads), static_cast<std::size_t>(variant.shared_bytes), stream>>>(
        call, data.q, data.k, data.v, data.out, data.lse);
}

GradientSpace::GradientSpace(const BackwardVariant& variant, const AttentionCall& call) {
    const std::int64_t blocks = std::int64_t{call.all_heads()} * divided_up(call.queries, variant.queries);
    auto take = [&](std::int64_t numbers) {
        const std::int64_t at = end;
        end += (numbers * 4 + 255) / 256 * 256;
        return at;
    };
    scaled_lse = take(blocks * variant.queries);
    row_sums = take(blocks * variant.queries);
    turns = take(blocks * variant.warps);
    next = take(2);
    partial_dq = take(blocks * variant.queries * variant.head);
}

void launch_backward(const BackwardVariant& variant, AttentionCall call, RowTask& rows, BackwardData data,
                     std::byte* workspace, std::int64_t l2_bytes, int multiprocessors, cudaStream_t stream) {
    const GradientSpace space(variant, call);
    rows.scaled_lse = reinterpret_cast<float*>(workspace + space.scaled_lse);
    rows.row_sums = reinterpret_cast<float*>(workspace + space.row_sums);
    rows.rows_of_head = std::int64_t{divided_up(call.queries, variant.queries)} * variant.queries;
    rows.query_block = variant.queries, rows.key_block = variant.keys, rows.warps = variant.warps;
    data.lse = rows.scaled_lse, data.row_sums = rows.row_sums;
    data.turns = reinterpret_cast<int*>(workspace + space.turns);
    data.next = reinterpret_cast<int*>(workspace + space.next);
    data.partial_dq = reinterpret_cast<float*>(workspace + space.partial_dq);
    const std::int64_t sizes = 2 * (call.head + call.value_head) + 4 * variant.head;
    call.heads_at_once = heads_at_once(sizes * call.queries * call.group(), l2_bytes);
    data.backwards = goes_backwards(variant, call, multiprocessors);
    launch_rows(call, rows, data, stream);

    const auto blocks =
        static_cast<unsigned>(divided_up(call.keys, variant.keys) * static_cast<int>(call.batch) * call.key_heads);
    const auto extras = static_cast<std::size_t>(extras_of(call));
    for (const BackwardKernel kernel : {variant.first_kernels[extras], variant.kernels[extras]}) {
        if (kernel == nullptr) continue;
        kernel<<<blocks, static_cast<unsigned>(variant.threads), static_cast<std::size_t>(variant.shared_bytes),
                 stream>>>(call, data);
        ++data.next;
    }
}

} // namespace tutti::backend::cuda

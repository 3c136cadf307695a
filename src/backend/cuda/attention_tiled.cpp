#include "backend/cuda/attention_tiled.h"

#include "backend/cuda/attention_launch.h"
#include "backend/cuda/attention_plain.h"
#include "backend/cuda/attention_request.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::backend::cuda {
namespace {

bool aligned(const void* pointer, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// Operands of which every head begins at a multiple of some bytes, if the first does.
struct Alignment {
    bool packs = true, pairs = true;

    void of_input(const Operand& operand) { packs = packs && heads_fit(operand, 8); }
    void of_output(const Operand& operand) { pairs = pairs && heads_fit(operand, 2); }
};

class TiledAttention : public Kernel {
  public:
    TiledAttention(const KernelRequest& request, const Gpu& gpu, const ForwardVariant& variant)
        : request_(request), variant_(variant), l2_bytes_(gpu.l2_bytes) {
        for (std::size_t i = 0; i < 3; ++i) alignment_.of_input(request.inputs[i]);
        alignment_.of_output(request.outputs[0]);
        check(allow_shared_memory(variant_), "attention");
    }

    Bytes workspace() const override { return {request_.document_bytes()}; }

    void run(const Launch& launch) const override {
        AttentionCall call = request_.at(launch, launch.workspace);
        const ForwardData data{launch.in<bf16>(0), launch.in<bf16>(1), launch.in<bf16>(2), launch.out<bf16>(0),
                               launch.out<float>(1)};
        call.packs = alignment_.packs && aligned(data.q, 16) && aligned(data.k, 16) && aligned(data.v, 16);
        call.pairs = alignment_.pairs && aligned(data.out, 4);
        launch_forward(variant_, call, data, l2_bytes_, stream_of(launch));
        check(cudaGetLastError(), "attention");
    }

  private:
    AttentionRequest request_;
    ForwardVariant variant_;
    std::int64_t l2_bytes_;
    Alignment alignment_;
};

class TiledAttentionGradient : public Kernel {
  public:
    TiledAttentionGradient(const KernelRequest& request, const Gpu& gpu, const BackwardVariant& variant)
        : request_(request), variant_(variant), gpu_(gpu), space_(variant, request_.call) {
        for (std::size_t i = 0; i < 4; ++i) alignment_.of_input(request.inputs[i]);
        for (std::size_t i = 0; i < 3; ++i) alignment_.of_output(request.outputs[i]);
        rows_.dout_strides = head_strides(request.inputs[0]), rows_.out_strides = head_strides(request.inputs[4]);
        rows_fit_ = heads_fit(request.inputs[0], 8) && heads_fit(request.inputs[4], 8);
        for (int d = 0; d < 3; ++d) rows_.lse_strides[d] = request.inputs[5].strides[d];
        data_.dout_strides = rows_.dout_strides;
        data_.dq_strides = head_strides(request.outputs[0]), data_.dk_strides = head_strides(request.outputs[1]);
        data_.dv_strides = head_strides(request.outputs[2]);
        check(allow_shared_memory(variant_), "attention_gradient");
        if (request_.dbias) bias_gradient_ = make_bias_gradient(request, gpu);
    }

    Bytes workspace() const override { return {documents_at() + request_.document_bytes()}; }

    void run(const Launch& launch) const override {
        const cudaStream_t stream = stream_of(launch);
        AttentionCall call = request_.at(launch, launch.workspace + documents_at());
        RowTask rows = rows_;
        BackwardData data = data_;
        rows.dout = data.dout = launch.in<bf16>(0), rows.out = launch.in<bf16>(4), rows.lse = launch.in<float>(5);
        data.q = launch.in<bf16>(1), data.k = launch.in<bf16>(2), data.v = launch.in<bf16>(3);
        data.dq = launch.out<bf16>(0), data.dk = launch.out<bf16>(1), data.dv = launch.out<bf16>(2);
        rows.packs = rows_fit_ && aligned(rows.dout, 16) && aligned(rows.out, 16);
        call.packs = alignment_.packs && aligned(data.dout, 16) && aligned(data.q, 16) && aligned(data.k, 16) &&
                     aligned(data.v, 16);
        data.pairs = alignment_.pairs && aligned(data.dq, 4) && aligned(data.dk, 4) && aligned(data.dv, 4);
        launch_backward(variant_, call, rows, data, launch.workspace, gpu_.l2_bytes, gpu_.multiprocessors, stream);
        if (request_.dsinks) {
            SinkGradientTask task{.lse = rows.lse,
                                  .row_sums = rows.row_sums,
                                  .rows_of_head = rows.rows_of_head,
                                  .gradient = launch.out<float>(*request_.dsinks)};
            for (int d = 0; d < 3; ++d) task.lse_strides[d] = rows.lse_strides[d];
            launch_sink_gradient(call, task, stream);
        }
        check(cudaGetLastError(), "attention_gradient");
        if (bias_gradient_) bias_gradient_->run(call, launch);
    }

  private:
    std::int64_t documents_at() const { return space_.end; }

    AttentionRequest request_;
    BackwardVariant variant_;
    Gpu gpu_;
    GradientSpace space_;
    Alignment alignment_;
    bool rows_fit_ = true;
    RowTask rows_;
    BackwardData data_;
    std::unique_ptr<BiasGradient> bias_gradient_;
};

// The variants for the smallest class of heads that holds these, as far as they fit.
template <class Variant, class Make>
std::vector<AttentionCandidate> candidates(std::vector<std::vector<Variant>> families, int head, const Gpu& gpu,
                                           Make make) {
    int fitting = 0;
    std::vector<AttentionCandidate> found;
    for (const std::vector<Variant>& family : families)
        for (const Variant& variant : family) {
            if (variant.head < head || variant.shared_bytes > gpu.shared_bytes) continue;
            if (fitting == 0) fitting = variant.head;
            if (variant.head != fitting) continue;
            found.push_back({fmt::format("tiles of {} queries and {} keys, {} threads, heads up to {}", variant.queries,
                                         variant.keys, variant.threads, variant.head),
                             make(variant)});
        }
    return found;
}

} // namespace

std::vector<AttentionCandidate> tiled_attention(const KernelRequest& request, const Gpu& gpu) {
    const AttentionRequest what(request);
    if (request.inputs[what.q].type.dtype != DType::bfloat16) return {};
    const int head = std::max(what.call.head, what.call.value_head);
    if (what.backward)
        return candidates<BackwardVariant>(
            {narrow_backward_variants(), middle_backward_variants(), wide_backward_variants()}, head, gpu,
            [&](const BackwardVariant& variant) {
                return std::make_shared<TiledAttentionGradient>(request, gpu, variant);
            });
    return candidates<ForwardVariant>(
        {narrow_forward_variants(), wide_forward_variants()}, head, gpu,
        [&](const ForwardVariant& variant) { return std::make_shared<TiledAttention>(request, gpu, variant); });
}

} // namespace tutti::backend::cuda

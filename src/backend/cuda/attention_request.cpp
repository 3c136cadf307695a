#include "backend/cuda/attention_request.h"

#include "backend/attention.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::backend::cuda {
namespace {

Addend addend_of(const KernelRequest& request, std::size_t input) {
    const Operand& operand = request.inputs[input];
    if (operand.type.dtype != DType::bfloat16 && operand.type.dtype != DType::float32)
        fail_unsupported(backend_name, request);
    Addend addend{.narrow = operand.type.dtype == DType::bfloat16};
    for (int d = 0; d < 4; ++d) addend.strides[d] = operand.type.shape[d] == 1 ? 0 : operand.strides[d];
    return addend;
}

int to_position(std::int64_t value) {
    constexpr std::int64_t most = std::numeric_limits<int>::max() / 4; // sums of a few do not overflow
    return static_cast<int>(std::clamp(value, -most, most));
}

AttentionDropout dropout_of(const KernelRequest& request, const AttentionPositions& positions) {
    const Attributes& a = request.attributes;
    const double p = a.real("dropout", 0);
    AttentionDropout dropout;
    if (p <= 0) return dropout;
    dropout.on = true;
    // A draw counts with its 24 upper bits: see `keeps`.
    dropout.threshold = std::min(static_cast<std::uint32_t>(std::ceil(p * 0x1p24)), (1u << 24) - 1) << 8;
    dropout.kept_scale = static_cast<float>(1 / (1 - p));
    dropout.first_sample = a.integer("first_sample", 0);
    dropout.first_head = a.integer("first_head", 0);
    dropout.first_query = positions.row(0), dropout.first_key = positions.first_key;
    dropout.whole_queries = positions.whole_queries, dropout.whole_keys = positions.whole_keys;
    dropout.source = hash_of(request.source);
    return dropout;
}

void expect_known(const KernelRequest& request) {
    const auto all = attention_attributes();
    std::vector<std::string_view> known(all.begin(), all.end());
    known.push_back("engine"); // see attention.cpp
    expect_attributes(backend_name, request, known);
}

} // namespace

HeadStrides head_strides(const Operand& operand) {
    return {operand.strides[0], operand.strides[1], operand.strides[2]};
}

bool heads_fit(const Operand& operand, std::int64_t elements) {
    const Shape &shape = operand.type.shape, &strides = operand.strides;
    for (int d = 0; d < 3; ++d)
        if (shape[d] > 1 && strides[d] % elements != 0) return false;
    return shape[3] % elements == 0;
}

AttentionRequest::AttentionRequest(const KernelRequest& request)
    : backward(request.op == "attention_gradient"), q(backward ? 1 : 0) {
    expect_known(request);
    const Attributes& a = request.attributes;
    const Operand &queries = request.inputs[q], &keys = request.inputs[q + 1], &values = request.inputs[q + 2];
    const Shape &qs = queries.type.shape, &ks = keys.type.shape;
    call.batch = qs[0];
    call.queries = static_cast<int>(qs[1]), call.heads = static_cast<int>(qs[2]), call.head = static_cast<int>(qs[3]);
    call.keys = static_cast<int>(ks[1]), call.key_heads = static_cast<int>(ks[2]);
    call.value_head = static_cast<int>(values.type.shape[3]);
    if (std::max(call.head, call.value_head) > 256) fail_unsupported(backend_name, request);
    call.q = head_strides(queries), call.k = head_strides(keys), call.v = head_strides(values);
    call.out = head_strides(backward ? request.inputs[4] : request.outputs[0]);
    call.scale = static_cast<float>(a.real("scale"));
    const AttentionPositions positions(a, call.queries, call.keys);
    call.causal = positions.causal;
    call.window = to_position(positions.window);
    call.offset = to_position(positions.first_query - positions.first_key);
    call.soft_cap = static_cast<float>(a.real("soft_cap", 0));
    call.dropout = dropout_of(request, positions);

    const AttentionInputs given(a, q + (backward ? 5 : 3), request.inputs.size());
    mask = given.mask, bias = given.bias, sinks = given.sinks, documents = given.documents;
    if (mask) call.mask = addend_of(request, *mask);
    if (bias) call.bias = addend_of(request, *bias);
    if (sinks) call.sinks_are_narrow = request.inputs[*sinks].type.dtype == DType::bfloat16;
    if (documents) {
        document_task_ = {.batch = call.batch, .queries = call.queries, .keys = call.keys};
        for (int d = 0; d < 2; ++d) {
            document_task_.query_strides[d] = request.inputs[*documents].strides[d];
            document_task_.key_strides[d] = request.inputs[*documents + 1].strides[d];
        }
    }
    std::size_t output = 3;
    if (backward && wants_gradient(a, "bias")) dbias = output++;
    if (backward && wants_gradient(a, "sinks")) dsinks = output;
}

std::int64_t AttentionRequest::document_bytes() const {
    return documents ? call.batch * call.queries * static_cast<std::int64_t>(sizeof(int2)) : 0;
}

AttentionCall AttentionRequest::at(const Launch& launch, std::byte* ranges) const {
    AttentionCall a = call;
    a.dropout.first_sample += launch.samples_before;
    a.dropout.scalars = launch.scalars;
    if (mask) a.mask.data = launch.inputs[*mask];
    if (bias) a.bias.data = launch.inputs[*bias];
    if (sinks) a.sinks = launch.inputs[*sinks];
    if (documents) {
        DocumentTask task = document_task_;
        task.of_queries = launch.in<std::int32_t>(*documents), task.of_keys = launch.in<std::int32_t>(*documents + 1);
        auto* const to = reinterpret_cast<int2*>(ranges);
        launch_documents(task, to, stream_of(launch));
        check(cudaGetLastError(), "finding documents");
        a.documents = to;
    }
    return a;
}

} // namespace tutti::backend::cuda

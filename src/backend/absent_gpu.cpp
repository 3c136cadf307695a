#include "backend/absent_gpu.h"

#include "backend/host_device.h"
#include "base/checked.h"
#include "base/error.h"
#include "graph/attention.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace tutti::backend {
namespace {

// As measured on an H200: CUDA's context, and the code of cuBLASLt, cuDNN and our own kernels.
constexpr Bytes libraries{std::int64_t{566} << 20};
constexpr std::int64_t matmuls = 32 << 20; // cuBLASLt's workspace in every matrix product

std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, 256); }

// Of the output head with its loss (backend/cuda/head.cpp): the logits of some rows and all losses; where the
// vocabulary is no multiple of 64, a copy of the weight that is; the gradient of the weight where it is not summed in
// place.
std::int64_t head_workspace(const KernelRequest& request) {
    const Operand &x = request.inputs[1], &weight = request.inputs[2], &gradient = request.outputs[2];
    const std::int64_t vocabulary = weight.type.shape[0], width = weight.type.shape[1];
    const std::int64_t padded = round_up(vocabulary, 64), all_rows = x.elements() / width;
    const std::int64_t rows = std::min(request.attributes.integer("rows"), all_rows), size = size_of(x.type.dtype);
    const bool has_bias = request.inputs.size() == 5;
    const DType sums = all_rows > rows ? DType::float32 : gradient.type.dtype;
    std::int64_t bytes = matmuls + aligned(rows * padded * size) + aligned(4 * all_rows);
    if (padded != vocabulary || sums != gradient.type.dtype) bytes += aligned(padded * width * size_of(sums));
    if (has_bias && sums != gradient.type.dtype) bytes += aligned(vocabulary * size_of(sums));
    if (padded == vocabulary) return bytes;
    return bytes + aligned(padded * width * size_of(weight.type.dtype)) + (has_bias ? aligned(padded * size) : 0);
}

// Of cuDNN's deterministic gradient of attention (backend/cuda/cudnn_attention.cpp): all scores of a part of the batch
// in 16 bits, and a float32 for each of their rows. Nothing where it is not taken.
std::int64_t cudnn_attention_gradient_workspace(const KernelRequest& request) {
    constexpr std::int64_t most = std::int64_t{2} << 30;
    const Attributes& a = request.attributes;
    const Shape &q = request.inputs[1].type.shape, &k = request.inputs[2].type.shape;
    const std::int64_t batch = q[0], rows = q[1] * q[2];
    const std::int64_t scores = q[2] * round_up(q[1], 64) * round_up(k[1], 64) * 2;
    if (request.inputs[1].type.dtype != DType::bfloat16 || scores > most || request.inputs.size() > 6 ||
        a.real("dropout", 0) > 0 || a.has("window") || a.has("soft_cap"))
        return 0;
    std::int64_t parts = 1;
    while (parts < batch && (batch % parts != 0 || batch / parts * scores > most)) ++parts;
    return batch / parts * scores + aligned(4 * batch / parts * rows) + 256;
}

// Of our own (backend/cuda/attention_launch.h): the float32 sums of the queries' gradient, in whole blocks of queries
// and in heads of a size that there are kernels for, two numbers for each row, and a turn for each warp of a block.
std::int64_t own_attention_gradient_workspace(const KernelRequest& request) {
    const Shape &q = request.inputs[1].type.shape, &v = request.inputs[3].type.shape;
    const bool has_documents = AttentionInputs(request.attributes, 6, request.inputs.size()).documents.has_value();
    const std::int64_t documents = has_documents ? 8 * q[0] * q[1] : 0;
    if (request.inputs[1].type.dtype != DType::bfloat16) return aligned(4 * q[0] * q[1] * q[2]) + documents;
    const std::int64_t largest = std::max(q[3], v[3]);
    std::int64_t head = 256;
    for (const std::int64_t size : {192, 128, 96, 64, 32})
        if (largest <= size) head = size;
    const std::int64_t block = head <= 128 ? 128 : 64, warps = head <= 64 ? 4 : 8;
    const std::int64_t blocks = q[0] * q[2] * (round_up(q[1], block) / block);
    return 2 * aligned(4 * blocks * block) + aligned(4 * blocks * warps) + 256 + aligned(4 * blocks * block * head) +
           documents;
}

// Which of them runs is timed on the GPU; a launch may need either.
std::int64_t attention_gradient_workspace(const KernelRequest& request) {
    return std::max(cudnn_attention_gradient_workspace(request), own_attention_gradient_workspace(request));
}

// Of the gradient of an embedding (backend/cuda/embedding_gradient.cu): tokens and their places, sorted and not, and
// two rows of sums for every 32 tokens. What the sort takes beside is some 8 bytes a token.
std::int64_t embedding_gradient_workspace(const KernelRequest& request) {
    const std::int64_t tokens = request.inputs[1].elements(), width = request.outputs[0].type.shape[1];
    return 4 * aligned(4 * tokens) + aligned(8 * tokens) + 2 * ((tokens + 31) / 32) * width * 4;
}

std::int64_t workspace_of(const KernelRequest& request) {
    static const std::set<std::string_view> of_matmuls = {"linear", "linear_input_gradient", "linear_weight_gradient",
                                                          "matmul"};
    if (of_matmuls.contains(request.op)) return matmuls;
    if (request.op == "linear_cross_entropy_gradient") return head_workspace(request);
    if (request.op == "attention_gradient") return attention_gradient_workspace(request);
    if (request.op == "embedding_gradient") return embedding_gradient_workspace(request);
    return 0; // far less than a matmul's
}

class AbsentKernel final : public Kernel {
  public:
    explicit AbsentKernel(Bytes workspace) : workspace_(workspace) {}
    Bytes workspace() const override { return workspace_; }
    void run(const Launch&) const override { TUTTI_CHECK(false, "a GPU that is not here computes nothing"); }

  private:
    Bytes workspace_;
};

class AbsentGpu final : public HostDevice {
  public:
    AbsentGpu(std::string model, Bytes memory) : model_(std::move(model)), memory_(memory) {}

    std::string name() const override { return "cuda"; }
    std::string model() const override { return model_ + ", not here"; }
    bool supports(DType dtype) const override { return dtype != DType::float64 && dtype != DType::float16; }
    std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        return std::make_unique<AbsentKernel>(Bytes{workspace_of(request)});
    }
    std::optional<DeviceMemory> memory() const override { return DeviceMemory{memory_, memory_ - libraries}; }

  private:
    std::string model_;
    Bytes memory_;
};

} // namespace

std::unique_ptr<Device> make_absent_gpu(const std::string& model, Bytes memory) {
    return std::make_unique<AbsentGpu>(model, memory);
}

} // namespace tutti::backend

#include "backend/cuda/cudnn_attention.h"

#include "backend/cuda/cuda.h"
#include "base/error.h"

#include <limits>

namespace tutti::backend::cuda {
namespace {

using Tensor = OperationGraph::Tensor;
using Sizes = OperationGraph::Sizes;

constexpr cudnnDataType_t data = CUDNN_DATA_BFLOAT16, wide = CUDNN_DATA_FLOAT;

constexpr std::size_t most_engines = 2; // to be compared by time; each takes a second or more to be compiled

// Ours are [b, positions, heads, size], cuDNN's [b, heads, positions, size].
Sizes heads_first(const Shape& ours) { return {ours[0], ours[2], ours[1], ours[3]}; }
Sizes transposed(const Sizes& sizes) { return {sizes[0], sizes[1], sizes[3], sizes[2]}; }

// Strides, with those that do not matter as in a dense tensor.
Sizes strides_of(const Operand& operand) {
    Shape strides = operand.strides;
    const Shape dense = dense_strides(operand.type.shape);
    for (int d = 0; d < strides.rank(); ++d)
        if (operand.type.shape[d] == 1) strides[d] = dense[d];
    return heads_first(strides);
}

// What forward and backward have in common.
struct Problem {
    std::int64_t b, t, s, h, g, d, e;
    bool causal;
    float scale;

    Problem(const KernelRequest& request, const Operand& q, const Operand& k, const Operand& v)
        : b(q.type.shape[0]), t(q.type.shape[1]), s(k.type.shape[1]), h(q.type.shape[2]), g(k.type.shape[2]),
          d(q.type.shape[3]), e(v.type.shape[3]), causal(request.attributes.flag("causal")),
          scale(static_cast<float>(request.attributes.real("scale"))) {}

    Sizes scores() const { return {b, h, t, s}; }
    Sizes rows() const { return {b, h, t, 1}; }
    Sizes row_strides() const { return {h * t, t, 1, 1}; }
};

Tensor operand(OperationGraph& graph, const char* name, const Operand& of, std::int64_t batch) {
    Sizes sizes = heads_first(of.type.shape);
    sizes[0] = batch;
    return graph.operand(name, data, sizes, strides_of(of));
}
Tensor transposed_operand(OperationGraph& graph, const char* name, const Operand& of, std::int64_t batch) {
    Sizes sizes = heads_first(of.type.shape);
    sizes[0] = batch;
    return graph.operand(name, data, transposed(sizes), transposed(strides_of(of)));
}

// Scores where the key is not later than the query, minus infinity elsewhere.
Tensor masked(OperationGraph& graph, const Problem& p, Tensor scores) {
    if (!p.causal) return scores;
    const Tensor row = graph.between("row", CUDNN_DATA_INT32, p.scores());
    const Tensor column = graph.between("column", CUDNN_DATA_INT32, p.scores());
    const Tensor seen = graph.between("seen", CUDNN_DATA_BOOLEAN, p.scores());
    const Tensor masked = graph.between("masked", wide, p.scores());
    const Tensor nothing = graph.constant("nothing", -std::numeric_limits<float>::infinity());
    graph.index("row", 2, scores, row);
    graph.index("column", 3, scores, column);
    graph.pointwise("seen", CUDNN_POINTWISE_CMP_GE, {row, column}, seen, CUDNN_DATA_BOOLEAN);
    graph.pointwise("mask", CUDNN_POINTWISE_BINARY_SELECT, {scores, nothing, seen}, masked);
    return masked;
}

// scores = scale q k^T; probabilities = softmax(scores); out = probabilities v; lse = max + log(sum)
OperationGraph forward_graph(std::shared_ptr<const Cudnn> cudnn, const Problem& p, const KernelRequest& request) {
    OperationGraph graph(std::move(cudnn));
    const Tensor q = operand(graph, "q", request.inputs[0], p.b);
    const Tensor k = transposed_operand(graph, "k", request.inputs[1], p.b);
    const Tensor v = operand(graph, "v", request.inputs[2], p.b);
    const Tensor out = operand(graph, "out", request.outputs[0], p.b);
    const Tensor lse = graph.operand("lse", wide, p.rows(), p.row_strides());

    const Tensor products = graph.between("products", wide, p.scores());
    const Tensor scaled = graph.between("scaled", wide, p.scores());
    graph.matmul("q k^T", q, k, products);
    graph.pointwise("scale", CUDNN_POINTWISE_MUL, {products, graph.constant("scale", p.scale)}, scaled);
    const Tensor scores = masked(graph, p, scaled);

    const Tensor largest = graph.between("largest", wide, p.rows(), p.row_strides());
    const Tensor shifted = graph.between("shifted", wide, p.scores());
    const Tensor exponentials = graph.between("exponentials", wide, p.scores());
    const Tensor sum = graph.between("sum", wide, p.rows(), p.row_strides());
    const Tensor log = graph.between("log", wide, p.rows(), p.row_strides());
    const Tensor probabilities = graph.between("probabilities", data, p.scores());
    graph.reduce("largest", CUDNN_REDUCE_TENSOR_MAX, scores, largest);
    graph.pointwise("shift", CUDNN_POINTWISE_SUB, {scores, largest}, shifted);
    graph.pointwise("exponentials", CUDNN_POINTWISE_EXP, {shifted}, exponentials);
    graph.reduce("sum", CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
    graph.pointwise("log", CUDNN_POINTWISE_LOG, {sum}, log);
    graph.pointwise("lse", CUDNN_POINTWISE_ADD, {largest, log}, lse);
    graph.pointwise("divide", CUDNN_POINTWISE_DIV, {exponentials, sum}, probabilities);
    graph.matmul("probabilities v", probabilities, v, out);
    return graph;
}

// probabilities = exp(scale q k^T - lse); dv = probabilities^T dout; row_sums = sum of dout out over each row
// dscores = scale probabilities (dout v^T - row_sums); dk = dscores^T q; dq = dscores k
// dq as a plain product, rather than as a sum in memory over the blocks of keys, is what makes cuDNN take its
// deterministic way: it keeps dscores in the workspace.
OperationGraph backward_graph(std::shared_ptr<const Cudnn> cudnn, const Problem& p, const KernelRequest& request) {
    OperationGraph graph(std::move(cudnn));
    const Tensor dout = operand(graph, "dout", request.inputs[0], p.b);
    const Tensor q = operand(graph, "q", request.inputs[1], p.b);
    const Tensor k = transposed_operand(graph, "k", request.inputs[2], p.b);
    const Tensor v = transposed_operand(graph, "v", request.inputs[3], p.b);
    const Tensor out = operand(graph, "out", request.inputs[4], p.b);
    const Tensor lse = graph.operand("lse", wide, p.rows(), p.row_strides());
    const Tensor dq = operand(graph, "dq", request.outputs[0], p.b);
    const Tensor dk = operand(graph, "dk", request.outputs[1], p.b);
    const Tensor dv = operand(graph, "dv", request.outputs[2], p.b);
    const Tensor row_sums = graph.operand("row sums", wide, p.rows(), p.row_strides());
    const Tensor scale = graph.constant("scale", p.scale);

    const Tensor both = graph.between("dout out", wide, {p.b, p.h, p.t, p.e});
    const Tensor summed = graph.between("dout out summed", wide, p.rows(), p.row_strides());
    graph.pointwise("dout out", CUDNN_POINTWISE_MUL, {dout, out}, both);
    graph.reduce("sum of dout out", CUDNN_REDUCE_TENSOR_ADD, both, summed);
    graph.pointwise("row sums", CUDNN_POINTWISE_MUL, {summed, graph.constant("one", 1.0f)}, row_sums);

    const Tensor products = graph.between("products", wide, p.scores());
    const Tensor scaled = graph.between("scaled", wide, p.scores());
    const Tensor shifted = graph.between("shifted", wide, p.scores());
    graph.matmul("q k^T", q, k, products);
    graph.pointwise("scale", CUDNN_POINTWISE_MUL, {products, scale}, scaled);
    graph.pointwise("shift", CUDNN_POINTWISE_SUB, {scaled, lse}, shifted);
    const Tensor scores = masked(graph, p, shifted);
    const Tensor probabilities = graph.between("probabilities", wide, p.scores());
    graph.pointwise("probabilities", CUDNN_POINTWISE_EXP, {scores}, probabilities);

    // A product of a transposed matrix, summed over the query heads that a key head serves.
    const Sizes turned = {p.b, p.h, p.s, p.t}, turned_strides = {p.h * p.t * p.s, p.t * p.s, 1, p.s};
    auto matmul_by_key = [&](const std::string& name, Tensor matrix, Tensor right, std::int64_t width, Tensor to) {
        const Tensor left = graph.between(name + " turned", data, turned, turned_strides);
        graph.reshape(name + " turned", matrix, left);
        if (p.h == p.g) return graph.matmul(name, left, right, to);
        const Tensor all = graph.between(name + " of all heads", data, {p.b, p.h, p.s, width});
        graph.matmul(name, left, right, all);
        graph.reduce(name + " of key heads", CUDNN_REDUCE_TENSOR_ADD, all, to);
    };
    matmul_by_key("dv", probabilities, dout, p.e, dv);

    const Tensor dprobabilities = graph.between("dprobabilities", wide, p.scores());
    const Tensor centred = graph.between("centred", wide, p.scores());
    const Tensor unscaled = graph.between("unscaled", wide, p.scores());
    const Tensor dscores = graph.between("dscores", wide, p.scores());
    graph.matmul("dout v^T", dout, v, dprobabilities);
    graph.pointwise("centre", CUDNN_POINTWISE_SUB, {dprobabilities, row_sums}, centred);
    graph.pointwise("unscaled", CUDNN_POINTWISE_MUL, {centred, probabilities}, unscaled);
    graph.pointwise("dscores", CUDNN_POINTWISE_MUL, {unscaled, scale}, dscores);
    matmul_by_key("dk", dscores, q, p.d, dk);

    const Tensor plain_k = graph.between("k as it is", data, {p.b, p.g, p.s, p.d}, strides_of(request.inputs[2]));
    graph.reshape("k as it is", k, plain_k);
    graph.matmul("dq", dscores, plain_k, dq);
    return graph;
}

// A plan run on one or more equal parts of the batch, one after the other, which share the workspace.
class CudnnAttention : public Kernel {
  public:
    CudnnAttention(const KernelRequest& request, CudnnPlan plan, std::int64_t parts, Bytes row_sums)
        : op_(request.op), plan_(std::move(plan)), parts_(parts), row_sums_(aligned(row_sums)) {
        auto step = [&](const Operand& operand) {
            return operand.type.shape[0] / parts * operand.strides[0] * size_of(operand.type.dtype);
        };
        for (const Operand& input : request.inputs) input_steps_.push_back(step(input));
        for (const Operand& output : request.outputs) output_steps_.push_back(step(output));
    }

    Bytes workspace() const override { return {row_sums_.count + plan_.workspace().count}; }
    const std::string& engine() const { return plan_.engine(); }

    // The graphs take the inputs, the outputs and, if there are any, the row sums.
    void run(const Launch& launch) const override {
        std::vector<void*> operands;
        for (std::int64_t part = 0; part < parts_; ++part) {
            operands.clear();
            for (std::size_t i = 0; i < input_steps_.size(); ++i)
                operands.push_back(const_cast<std::byte*>(launch.inputs[i]) + part * input_steps_[i]);
            for (std::size_t i = 0; i < output_steps_.size(); ++i)
                operands.push_back(launch.outputs[i] + part * output_steps_[i]);
            if (row_sums_.count > 0) operands.push_back(launch.workspace);
            try {
                plan_.run(stream_of(launch), operands, launch.workspace + row_sums_.count);
            } catch (const CudnnError& error) {
                fail_world("{}: cuDNN says {}", op_, error.what());
            }
        }
    }

  private:
    static Bytes aligned(Bytes size) { return {(size.count + 255) / 256 * 256}; }

    std::string op_;
    CudnnPlan plan_;
    std::int64_t parts_;
    Bytes row_sums_;
    std::vector<std::int64_t> input_steps_, output_steps_; // bytes from one part to the next
};

// The deterministic gradient keeps all scores of a part of the batch in the workspace, in 16 bits. Where those of one
// sample are more than this, it is not taken, however fast it is: own kernels need memory that is linear in the
// sequence.
std::int64_t parts_of_batch(const Problem& p) {
    constexpr std::int64_t most = std::int64_t{2} << 30;
    auto rounded = [](std::int64_t size) { return (size + 63) / 64 * 64; };
    const std::int64_t sample = p.h * rounded(p.t) * rounded(p.s) * 2;
    if (sample > most) throw CudnnError(fmt::format("{} of workspace for one sample", to_string(Bytes{sample})));
    std::int64_t parts = 1;
    while (parts < p.b && (p.b % parts != 0 || p.b / parts * sample > most)) ++parts;
    if (parts > 1 && p.b / parts * p.h * p.t % 4 != 0) throw CudnnError("parts of the batch would not be aligned");
    return parts;
}

// Whether cuDNN's loads can walk along it.
bool walkable(const Operand& operand) {
    const Shape& shape = operand.type.shape;
    if (operand.strides.back() != 1) return false;
    for (int d = 0; d < shape.rank() - 1; ++d)
        if (shape[d] > 1 && (operand.strides[d] <= 0 || operand.strides[d] % 8 != 0)) return false;
    return true;
}

} // namespace

std::string cudnn_attention_lacks(const KernelRequest& request) {
    const bool backward = request.op == "attention_gradient";
    const std::size_t first = backward ? 1 : 0, plain = backward ? 6 : 3;
    const Problem p(request, request.inputs[first], request.inputs[first + 1], request.inputs[first + 2]);
    std::vector<const Operand*> all;
    for (std::size_t i = 0; i < plain; ++i) all.push_back(&request.inputs[i]);
    for (const Operand& output : request.outputs) all.push_back(&output);
    const Operand* lse = backward ? &request.inputs[5] : &request.outputs[1];
    if (request.attributes.has("takes") && !request.attributes.text("takes").empty())
        return "there are " + request.attributes.text("takes");
    if (request.inputs.size() > plain) return "there is a mask";
    if (request.attributes.integer("window", 0) > 0) return "there is a window";
    if (request.attributes.real("soft_cap", 0) > 0) return "there is a soft cap";
    if (request.attributes.integer("first_query", 0) != request.attributes.integer("first_key", 0))
        return "queries and keys are not the same positions";
    if (request.attributes.real("dropout", 0) > 0) return "there is dropout";
    if (!lse->dense()) return "the log-sum-exps are not dense";
    for (const Operand* operand : all) {
        if (operand == lse) continue;
        if (operand->type.dtype != DType::bfloat16) return "the data are not bfloat16";
        if (!walkable(*operand)) return "strides are no multiples of 16 bytes";
    }
    if (p.d % 8 != 0 || p.e % 8 != 0 || p.d > 256 || p.e > 256) return "of the sizes of the heads";
    if (p.t == 1 && p.s == 1) return "there is but one position";
    if (p.causal && p.t != p.s) return "queries and keys are not the same positions";
    return {};
}

std::vector<std::unique_ptr<Kernel>> make_cudnn_attention(std::shared_ptr<const Cudnn> cudnn,
                                                          const KernelRequest& request) {
    std::vector<std::unique_ptr<Kernel>> kernels;
    auto add = [&](OperationGraph graph, std::int64_t parts, Bytes row_sums) {
        for (CudnnPlan& plan : CudnnPlan::all(std::move(graph), most_engines))
            kernels.push_back(std::make_unique<CudnnAttention>(request, std::move(plan), parts, row_sums));
    };
    if (request.op == "attention") {
        const Problem p(request, request.inputs[0], request.inputs[1], request.inputs[2]);
        add(forward_graph(std::move(cudnn), p, request), 1, {});
        return kernels;
    }
    Problem p(request, request.inputs[1], request.inputs[2], request.inputs[3]);
    if (cudnn->version() <= 91500 && p.s % 128 != 0) throw CudnnError("this version needs multiples of 128 keys");
    const std::int64_t parts = parts_of_batch(p);
    p.b /= parts;
    add(backward_graph(std::move(cudnn), p, request), parts,
        Bytes{p.b * p.h * p.t * static_cast<std::int64_t>(sizeof(float))});
    return kernels;
}

std::string engine_of(const Kernel& kernel) { return dynamic_cast<const CudnnAttention&>(kernel).engine(); }

} // namespace tutti::backend::cuda

// The output head with its loss, made of the kernels of its parts, which run on a few rows at a time.
#include "backend/cpu/kernels.h"

#include <algorithm>

namespace tutti::backend::cpu {
namespace {

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

class LinearCrossEntropyGradient : public Kernel {
  public:
    LinearCrossEntropyGradient(const KernelTable& table, const KernelRequest& request) {
        const Operand &x = request.inputs[1], &weight = request.inputs[2];
        const DType dtype = x.type.dtype;
        width_ = x.type.shape.back();
        element_ = size_of(dtype);
        has_bias_ = request.inputs.size() == 5;
        const std::int64_t all = x.elements() / width_, vocabulary = weight.type.shape[0];
        const std::int64_t rows = std::min(all, request.attributes.integer("rows"));
        lse_at_ = align(rows * vocabulary * element_);
        loss_at_ = lse_at_ + align(rows * static_cast<std::int64_t>(sizeof(float)));
        rest_at_ = loss_at_ + 256;
        for (std::int64_t begin = 0; begin < all; begin += rows) {
            const std::int64_t count = std::min(rows, all - begin);
            if (begin == 0 || begin == rows || count < rows)
                parts_.push_back(prepare(table, request, count, begin > 0 || request.accumulate));
            pieces_.push_back({begin, parts_.size() - 1});
        }
    }

    Bytes workspace() const override { return {rest_at_ + rest_}; }

    void run(const Launch& l) const override {
        std::byte *logits = l.workspace, *lse = l.workspace + lse_at_, *piece_loss = l.workspace + loss_at_;
        const std::byte *dloss = l.inputs[0], *weight = l.inputs[2];
        double loss = 0;
        for (const Piece& piece : pieces_) {
            const Part& part = parts_[piece.part];
            const std::byte* x = l.inputs[1] + piece.begin * width_ * element_;
            const std::byte* targets = l.inputs[3] + piece.begin * static_cast<std::int64_t>(sizeof(std::int64_t));
            auto run = [&](const std::unique_ptr<Kernel>& kernel, std::initializer_list<const std::byte*> in,
                           std::initializer_list<std::byte*> out) {
                kernel->run({{in.begin(), in.size()},
                             {out.begin(), out.size()},
                             l.workspace + rest_at_,
                             l.scalars,
                             l.samples_before,
                             l.queue});
            };
            if (has_bias_)
                run(part.logits, {x, weight, l.inputs[4]}, {logits});
            else
                run(part.logits, {x, weight}, {logits});
            run(part.loss, {logits, targets}, {piece_loss, lse});
            loss += static_cast<double>(*reinterpret_cast<const float*>(piece_loss));
            run(part.gradient, {dloss, logits, targets, lse}, {logits});
            run(part.input, {logits, weight}, {l.outputs[1] + piece.begin * width_ * element_});
            run(part.weight, {logits, x}, {l.outputs[2]});
            if (has_bias_) run(part.bias, {logits}, {l.outputs[3]});
        }
        *l.out<float>(0) = static_cast<float>(loss);
    }

  private:
    // The kernels for a number of rows; gradients of parameters are overwritten or added to.
    struct Part {
        std::unique_ptr<Kernel> logits, loss, gradient, input, weight, bias;
    };
    struct Piece {
        std::int64_t begin;
        std::size_t part;
    };

    Part prepare(const KernelTable& table, const KernelRequest& request, std::int64_t rows, bool accumulate) {
        auto dense = [](DType dtype, Shape shape) { return Operand{{dtype, shape}, dense_strides(shape)}; };
        const Operand& weight = request.inputs[2];
        const DType dtype = weight.type.dtype;
        const Operand x = dense(dtype, {rows, width_}), logits = dense(dtype, {rows, weight.type.shape[0]});
        const Operand targets = dense(DType::int64, {rows}), lse = dense(DType::float32, {rows});
        auto make = [&](const char* op, std::vector<Operand> in, std::vector<Operand> out, bool adds = false) {
            auto kernel = table.prepare(backend_name,
                                        {op, request.attributes, std::move(in), std::move(out), adds, request.source});
            rest_ = std::max(rest_, kernel->workspace().count);
            return kernel;
        };
        Part part;
        std::vector<Operand> linear = {x, weight};
        if (has_bias_) linear.push_back(request.inputs[4]);
        part.logits = make("linear", std::move(linear), {logits});
        part.loss = make("cross_entropy", {logits, targets}, {request.outputs[0], lse});
        part.gradient = make("cross_entropy_gradient", {request.inputs[0], logits, targets, lse}, {logits});
        part.input = make("linear_input_gradient", {logits, weight}, {x});
        part.weight = make("linear_weight_gradient", {logits, x}, {request.outputs[2]}, accumulate);
        if (has_bias_) part.bias = make("bias_gradient", {logits}, {request.outputs[3]}, accumulate);
        return part;
    }

    std::vector<Part> parts_; // of the first piece, of those in the middle, of a last one with fewer rows
    std::vector<Piece> pieces_;
    std::int64_t width_, element_, lse_at_, loss_at_, rest_at_, rest_ = 0;
    bool has_bias_;
};

} // namespace

// The table lives as long as what it prepares with.
void add_head_kernels(KernelTable& table) {
    table.add("linear_cross_entropy_gradient", PrepareKernel([&table](const KernelRequest& request) {
                  return std::make_unique<LinearCrossEntropyGradient>(table, request);
              }));
}

} // namespace tutti::backend::cpu

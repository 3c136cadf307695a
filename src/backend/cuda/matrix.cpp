// Matrix products. Operands are given to cuBLASLt as they lie in memory, transposed or not, and gradients of weights
// are written, or added, straight into the parameter's own layout.
#include "backend/cuda/cublas.h"
#include "base/error.h"

#include <algorithm>

namespace tutti::cuda {
namespace {

// Which inputs of a kernel the operands of its product are; out is output 0.
struct Places {
    std::size_t left = 0, right = 1;
    std::optional<std::size_t> bias = {}, addend = {};
    bool add_to_out = false;
};

class ProductKernel : public Kernel {
  public:
    // `outer`: one product for each of these, at its offsets.
    ProductKernel(Cublas& cublas, const Product& product, const Places& places, std::vector<Batch> outer = {{}})
        : prepared_(cublas.prepare(product)), product_(product), places_(places), outer_(std::move(outer)) {}

    Bytes workspace() const override { return Cublas::workspace; }

    void run(const Launch& launch) const override {
        for (const Batch& at : outer_) {
            std::byte* const out = launch.outputs[0] + at.out * size_of(product_.out.dtype);
            const ProductPointers pointers{.left = launch.inputs[places_.left] + at.left * size_of(product_.left.dtype),
                                           .right =
                                               launch.inputs[places_.right] + at.right * size_of(product_.right.dtype),
                                           .bias = places_.bias ? launch.inputs[*places_.bias] : nullptr,
                                           .addend = places_.add_to_out ? out
                                                     : places_.addend   ? launch.inputs[*places_.addend]
                                                                        : nullptr,
                                           .out = out};
            prepared_->run(stream_of(launch), pointers, launch.workspace);
        }
    }

  private:
    std::shared_ptr<const MatrixProduct> prepared_;
    Product product_;
    Places places_;
    std::vector<Batch> outer_;
};

// y [r,n] = x [r,k] weight' [k,n] + bias
std::unique_ptr<Kernel> linear(Cublas& cublas, const KernelRequest& request) {
    const bool has_bias = request.inputs.size() == 3;
    const Product product{.left = matrix_of(request.inputs[0]),
                          .right = matrix_of(request.inputs[1]).transposed(),
                          .out = matrix_of(request.outputs[0]),
                          .has_bias = has_bias};
    Places places;
    if (has_bias) places.bias = 2;
    return std::make_unique<ProductKernel>(cublas, product, places);
}

// dx [r,k] = dy [r,n] weight [n,k] + addend
std::unique_ptr<Kernel> linear_input_gradient(Cublas& cublas, const KernelRequest& request) {
    Product product{.left = matrix_of(request.inputs[0]),
                    .right = matrix_of(request.inputs[1]),
                    .out = matrix_of(request.outputs[0])};
    Places places;
    if (request.inputs.size() == 3) {
        product.addend = matrix_of(request.inputs[2]);
        places.addend = 2;
    }
    return std::make_unique<ProductKernel>(cublas, product, places);
}

// dweight [n,k] = dy' [n,r] x [r,k]
std::unique_ptr<Kernel> linear_weight_gradient(Cublas& cublas, const KernelRequest& request) {
    Product product{.left = matrix_of(request.inputs[0]).transposed(),
                    .right = matrix_of(request.inputs[1]),
                    .out = matrix_of(request.outputs[0])};
    if (request.accumulate) product.addend = product.out;
    return std::make_unique<ProductKernel>(cublas, product, Places{.add_to_out = request.accumulate});
}

// The last two dimensions.
Matrix last_two(const Operand& operand, bool transpose) {
    const int rank = operand.type.shape.rank();
    const Matrix m{operand.type.dtype, operand.type.shape[rank - 2], operand.type.shape[rank - 1],
                   operand.strides[rank - 2], operand.strides[rank - 1]};
    return transpose ? m.transposed() : m;
}

// The batch dimensions, neighbours joined where their strides allow it. The largest is done by one call; of the others
// each element is a call of its own.
struct Batches {
    Batch inner;
    std::vector<Batch> outer = {{}};

    explicit Batches(const KernelRequest& request) {
        const Operand &a = request.inputs[0], &b = request.inputs[1], &y = request.outputs[0];
        std::vector<Batch> dims;
        for (int d = 0; d + 2 < y.type.shape.rank(); ++d) {
            const Batch dim{y.type.shape[d], a.strides[d], b.strides[d], y.strides[d]};
            if (dim.count == 1) continue;
            if (!dims.empty() && dims.back().left == dim.left * dim.count &&
                dims.back().right == dim.right * dim.count && dims.back().out == dim.out * dim.count)
                dims.back() = {dims.back().count * dim.count, dim.left, dim.right, dim.out};
            else
                dims.push_back(dim);
        }
        // Not one that an operand was expanded along.
        auto calls_saved = [](const Batch& dim) { return dim.left > 0 && dim.right > 0 ? dim.count : 0; };
        const auto largest = std::ranges::max_element(dims, {}, calls_saved);
        if (largest != dims.end() && calls_saved(*largest) > 0) {
            inner = *largest;
            dims.erase(largest);
        }
        for (const Batch& dim : dims) {
            std::vector<Batch> next;
            for (const Batch& at : outer)
                for (std::int64_t i = 0; i < dim.count; ++i)
                    next.push_back({1, at.left + i * dim.left, at.right + i * dim.right, at.out + i * dim.out});
            outer = std::move(next);
        }
    }
};

std::unique_ptr<Kernel> matmul(Cublas& cublas, const KernelRequest& request) {
    const Batches batches(request);
    const Product product{.left = last_two(request.inputs[0], request.attributes.flag("transpose_a")),
                          .right = last_two(request.inputs[1], request.attributes.flag("transpose_b")),
                          .out = last_two(request.outputs[0], false),
                          .batch = batches.inner};
    return std::make_unique<ProductKernel>(cublas, product, Places{}, batches.outer);
}

void check_types(const KernelRequest& request) {
    for (const Operand& operand : request.inputs)
        if (operand.type.dtype != DType::float32 && operand.type.dtype != DType::bfloat16)
            fail_unsupported(backend_name, request);
}

} // namespace

void add_matrix_kernels(KernelTable& table, const Gpu& gpu) {
    using Make = std::unique_ptr<Kernel> (*)(Cublas&, const KernelRequest&);
    const auto cublas = std::make_shared<Cublas>(gpu);
    auto add = [&](const char* name, Make make) {
        table.add(name, PrepareKernel([make, cublas](const KernelRequest& request) {
                      check_types(request);
                      return make(*cublas, request);
                  }));
    };
    add("linear", linear);
    add("linear_input_gradient", linear_input_gradient);
    add("linear_weight_gradient", linear_weight_gradient);
    add("matmul", matmul);
}

} // namespace tutti::cuda

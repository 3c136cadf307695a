// How fast is oneDNN at the three matrix products of a linear layer, and in which formulation?
//
//   forward          Y[M,N]  = X[M,K] W^T       (W stored [N,K]; GPT-2's checkpoints store it [K,N])
//   input gradient   dX[M,K] = dY[M,N] W
//   weight gradient  dW      = dY^T X           (as stored: [N,K], or [K,N] = X^T dY)
//
// Each product is tried as a matmul primitive on the tensors as they lie, as a matmul whose operands are first copied
// into the layout that oneDNN likes best (copy included in the time), as an inner-product primitive, and as plain
// dnnl_sgemm. The shapes are GPT-2 124M's for a batch of 1024 tokens. One JSON line for each, then the fastest of each.
//
//   matmul_rate [--threads 2] [--seconds 0.5] [--isa avx512_core_bf16|avx512_core|avx2|all] [--shape head]
//   [--accumulate]
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Arguments = std::unordered_map<int, dnnl::memory>;

struct Shape {
    std::string name;
    int64_t tokens, outputs, inputs;
    double flops() const { return 2.0 * static_cast<double>(tokens * outputs * inputs); }
};

const std::vector<Shape> shapes = {
    {"qkv", 1024, 2304, 768},  {"projection", 1024, 768, 768}, {"up", 1024, 3072, 768},
    {"down", 1024, 768, 3072}, {"head", 1024, 50257, 768},
};

// A matrix as it lies in memory: `stored_rows` x `stored_columns`, dense, row-major; `transposed` is how the product
// reads it.
struct Matrix {
    int64_t stored_rows, stored_columns;
    bool transposed;
    int64_t rows() const { return transposed ? stored_columns : stored_rows; }
    int64_t columns() const { return transposed ? stored_rows : stored_columns; }
};

// One of the three products, for one storage of the weights: destination = left * right.
struct Product {
    std::string name;
    std::string weights; // how W (or dW) is stored
    Matrix left, right;
    dnnl::memory::dims destination() const { return {left.rows(), right.columns()}; }
};

std::vector<Product> products_of(const Shape& shape) {
    const auto [m, n, k] = std::tuple(shape.tokens, shape.outputs, shape.inputs);
    return {
        {"forward", "[N,K]", {m, k, false}, {n, k, true}},
        {"forward", "[K,N]", {m, k, false}, {k, n, false}},
        {"input gradient", "[N,K]", {m, n, false}, {n, k, false}},
        {"input gradient", "[K,N]", {m, n, false}, {k, n, true}},
        {"weight gradient", "[N,K]", {m, n, true}, {m, k, false}},
        {"weight gradient", "[K,N]", {m, k, true}, {m, n, false}},
    };
}

struct Settings {
    int threads = 2;
    double seconds = 0.5;
    std::string isa = "avx512_core_bf16";
    bool accumulate = false;
};

struct Result {
    std::string formulation, implementation;
    double gflops;
};

class Bench {
  public:
    explicit Bench(const Settings& settings) : settings_(settings), stream_(engine_) {}

    void run(const Shape& shape, const Product& product, Type type, Type destination_type) {
        const auto label = fmt::format(
            R"("type": "{}", "destination": "{}", "shape": "{}", "M": {}, "N": {}, "K": {}, "product": "{}", "weights": "{}")",
            name_of(type), name_of(destination_type), shape.name, shape.tokens, shape.outputs, shape.inputs,
            product.name, product.weights);
        std::optional<Result> best;
        const auto report = [&](const std::string& formulation, const std::string& implementation, double seconds) {
            const Result result{formulation, implementation, shape.flops() / seconds * 1e-9};
            fmt::print("{{{}, \"formulation\": \"{}\", \"implementation\": \"{}\", \"gflops\": {:.0f}}}\n", label,
                       formulation, implementation, result.gflops);
            const bool whole = formulation != copied_before;
            if (whole && (!best || result.gflops > best->gflops)) best = result;
        };
        // oneDNN refuses what it has no kernel for; that is an answer too.
        const auto attempt = [&](const std::string& formulation, const std::function<void()>& body) {
            try {
                body();
            } catch (const dnnl::error& error) {
                fmt::print("{{{}, \"formulation\": \"{}\", \"refused\": \"{}\"}}\n", label, formulation, error.what());
            }
        };

        attempt("matmul as stored", [&] {
            const auto left = filled(description(product.left, type));
            const auto right = filled(description(product.right, type));
            const auto destination = filled({product.destination(), destination_type, Tag::ab});
            const auto primitive_description = matmul(left.get_desc(), right.get_desc(), destination.get_desc());
            const dnnl::matmul primitive(primitive_description);
            const Arguments arguments{{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, destination}};
            report("matmul as stored", primitive_description.impl_info_str(),
                   seconds_of([&] { primitive.execute(stream_, arguments); }));
        });
        attempt("matmul right copied", [&] { copied(product, type, destination_type, false, true, report); });
        attempt("matmul left copied", [&] { copied(product, type, destination_type, true, false, report); });
        attempt("matmul both copied", [&] { copied(product, type, destination_type, true, true, report); });
        attempt("inner product", [&] { inner_product(shape, product, type, destination_type, report); });
        if (type == Type::f32) attempt("sgemm", [&] { sgemm(product, report); });
        if (best)
            fmt::print("{{{}, \"fastest\": \"{}\", \"implementation\": \"{}\", \"gflops\": {:.0f}}}\n", label,
                       best->formulation, best->implementation, best->gflops);
        std::fflush(stdout);
    }

  private:
    static constexpr const char* copied_before = "matmul right copied before"; // the copy is not in its time

    using Report = std::function<void(const std::string&, const std::string&, double)>;

    static const char* name_of(Type type) { return type == Type::f32 ? "f32" : "bf16"; }

    static dnnl::memory::desc description(const Matrix& matrix, Type type) {
        return {{matrix.rows(), matrix.columns()}, type, matrix.transposed ? Tag::ba : Tag::ab};
    }

    // Small values that are not all alike; bf16 gets the upper halves of the same floats.
    dnnl::memory filled(const dnnl::memory::desc& description) {
        dnnl::memory memory(description, engine_);
        const auto bytes = description.get_size();
        auto* data = static_cast<std::byte*>(memory.get_data_handle());
        const bool half = description.data_type() == Type::bf16;
        const size_t width = half ? 2 : 4;
        for (size_t i = 0; i < bytes / width; ++i) {
            const float value = static_cast<float>(i * 7919 % 1021) / 1021.0F - 0.5F;
            uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            if (half) bits >>= 16;
            std::memcpy(data + i * width, &bits, width);
        }
        return memory;
    }

    // Seconds of one execution: the fastest of at least five, after one to warm up.
    double seconds_of(const std::function<void()>& body) {
        using Clock = std::chrono::steady_clock;
        const auto once = [&] {
            const auto start = Clock::now();
            body();
            stream_.wait();
            return std::chrono::duration<double>(Clock::now() - start).count();
        };
        once();
        double fastest = once(), total = fastest;
        for (int i = 0; i < 4 || total < settings_.seconds; ++i) {
            const double seconds = once();
            fastest = std::min(fastest, seconds);
            total += seconds;
        }
        return fastest;
    }

    dnnl::matmul::primitive_desc matmul(const dnnl::memory::desc& left, const dnnl::memory::desc& right,
                                        const dnnl::memory::desc& destination) {
        dnnl::primitive_attr attributes;
        if (settings_.accumulate) {
            dnnl::post_ops post;
            post.append_sum(1.0F);
            attributes.set_post_ops(post);
        }
        return {{left, right, destination}, attributes, engine_};
    }

    void copied(const Product& product, Type type, Type destination_type, bool copy_left, bool copy_right,
                const Report& report) {
        const auto left = filled(description(product.left, type));
        const auto right = filled(description(product.right, type));
        const auto destination = filled({product.destination(), destination_type, Tag::ab});
        const dnnl::memory::desc any_left({product.left.rows(), product.left.columns()}, type, Tag::any);
        const dnnl::memory::desc any_right({product.right.rows(), product.right.columns()}, type, Tag::any);
        const auto primitive_description = matmul(copy_left ? any_left : left.get_desc(),
                                                  copy_right ? any_right : right.get_desc(), destination.get_desc());
        const bool left_moves = primitive_description.src_desc() != left.get_desc();
        const bool right_moves = primitive_description.weights_desc() != right.get_desc();
        if (left_moves != copy_left || right_moves != copy_right)
            return; // oneDNN is content: same as another formulation
        dnnl::memory new_left(primitive_description.src_desc(), engine_),
            new_right(primitive_description.weights_desc(), engine_);
        const dnnl::reorder move_left(left, left_moves ? new_left : left),
            move_right(right, right_moves ? new_right : right);
        const dnnl::matmul primitive(primitive_description);
        const Arguments arguments{{DNNL_ARG_SRC, left_moves ? new_left : left},
                                  {DNNL_ARG_WEIGHTS, right_moves ? new_right : right},
                                  {DNNL_ARG_DST, destination}};
        const auto moves = [&] {
            if (left_moves) move_left.execute(stream_, {{DNNL_ARG_FROM, left}, {DNNL_ARG_TO, new_left}});
            if (right_moves) move_right.execute(stream_, {{DNNL_ARG_FROM, right}, {DNNL_ARG_TO, new_right}});
        };
        const std::string name = std::string("matmul ") +
                                 (copy_left && copy_right ? "both"
                                  : copy_left             ? "left"
                                                          : "right") +
                                 " copied";
        report(name, primitive_description.impl_info_str(), seconds_of([&] {
                   moves();
                   primitive.execute(stream_, arguments);
               }));
        // What is left once the copy is made: what counts for weights that are copied once for many micro-batches.
        if (!left_moves)
            report(copied_before, primitive_description.impl_info_str(),
                   seconds_of([&] { primitive.execute(stream_, arguments); }));
    }

    void inner_product(const Shape& shape, const Product& product, Type type, Type destination_type,
                       const Report& report) {
        using Inner = dnnl::inner_product_forward;
        const dnnl::memory::dims source_dims{shape.tokens, shape.inputs}, weight_dims{shape.outputs, shape.inputs},
            output_dims{shape.tokens, shape.outputs};
        const auto weight_tag = product.weights == "[N,K]" ? Tag::ab : Tag::ba;
        const bool forward = product.name == "forward", data = product.name == "input gradient";
        const auto source = filled({source_dims, data ? destination_type : type, Tag::ab});
        const auto weights = filled({weight_dims, forward || data ? type : destination_type, weight_tag});
        const auto output = filled({output_dims, forward ? destination_type : type, Tag::ab});
        const Inner::primitive_desc hint(
            {dnnl::prop_kind::forward_training, source.get_desc(), weights.get_desc(), output.get_desc()}, engine_);
        const auto time = [&](const dnnl::primitive& primitive, const char* implementation,
                              const Arguments& arguments) {
            const std::string name = implementation;
            report("inner product", name, seconds_of([&] { primitive.execute(stream_, arguments); }));
        };
        if (forward) {
            time(Inner(hint), hint.impl_info_str(),
                 {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, output}});
        } else if (data) {
            using Backward = dnnl::inner_product_backward_data;
            const Backward::primitive_desc backward({source.get_desc(), weights.get_desc(), output.get_desc()}, engine_,
                                                    hint);
            time(Backward(backward), backward.impl_info_str(),
                 {{DNNL_ARG_DIFF_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_DST, output}});
        } else {
            using Backward = dnnl::inner_product_backward_weights;
            const Backward::primitive_desc backward({source.get_desc(), weights.get_desc(), output.get_desc()}, engine_,
                                                    hint);
            time(Backward(backward), backward.impl_info_str(),
                 {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_WEIGHTS, weights}, {DNNL_ARG_DIFF_DST, output}});
        }
    }

    void sgemm(const Product& product, const Report& report) {
        const auto left = filled(description(product.left, Type::f32));
        const auto right = filled(description(product.right, Type::f32));
        const auto destination = filled({product.destination(), Type::f32, Tag::ab});
        const auto data = [](const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); };
        report("sgemm", "dnnl_sgemm", seconds_of([&] {
                   dnnl_sgemm(product.left.transposed ? 'T' : 'N', product.right.transposed ? 'T' : 'N',
                              product.left.rows(), product.right.columns(), product.left.columns(), 1.0F, data(left),
                              product.left.stored_columns, data(right), product.right.stored_columns,
                              settings_.accumulate ? 1.0F : 0.0F, data(destination), product.right.columns());
               }));
    }

    Settings settings_;
    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_;
};

} // namespace

int main(int argument_count, char** arguments) {
    Settings settings;
    std::string only;
    CLI::App app("Rate of oneDNN's matrix products for the shapes of GPT-2 124M");
    app.add_option("--threads", settings.threads, "OpenMP threads")->check(CLI::PositiveNumber);
    app.add_option("--seconds", settings.seconds, "time spent on each line")->check(CLI::PositiveNumber);
    app.add_option("--isa", settings.isa, "highest instruction set oneDNN may use");
    app.add_option("--shape", only, "one shape only");
    app.add_flag("--accumulate", settings.accumulate, "add to the destination (matmul and sgemm)");
    CLI11_PARSE(app, argument_count, arguments);

    const std::map<std::string, dnnl::cpu_isa> isas = {{"avx512_core_bf16", dnnl::cpu_isa::avx512_core_bf16},
                                                       {"avx512_core", dnnl::cpu_isa::avx512_core},
                                                       {"avx2", dnnl::cpu_isa::avx2},
                                                       {"all", dnnl::cpu_isa::all}};
    if (!isas.contains(settings.isa)) {
        fmt::print(stderr, "matmul_rate: --isa {} is none of avx512_core_bf16, avx512_core, avx2, all\n", settings.isa);
        return 2;
    }
    dnnl::set_max_cpu_isa(isas.at(settings.isa));
    omp_set_num_threads(settings.threads);

    Bench bench(settings);
    for (const auto& shape : shapes) {
        if (!only.empty() && only != shape.name) continue;
        for (const auto& product : products_of(shape)) {
            bench.run(shape, product, Type::f32, Type::f32);
            bench.run(shape, product, Type::bf16, Type::bf16);
            if (product.name == "weight gradient") bench.run(shape, product, Type::bf16, Type::f32);
        }
    }
    return 0;
}

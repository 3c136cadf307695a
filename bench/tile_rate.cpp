// How fast are our tiles of bf16 at the three matrix products of GPT-2 124M's linear layers, for 1024 tokens, with each
// arithmetic that this CPU runs? One JSON line for each. matmul_rate has oneDNN's figures.
//   tile_rate [THREADS] [SECONDS]
#include "backend/cpu/tiled_matmul.h"

#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace tutti::backend::cpu {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Layer {
    const char* name;
    std::int64_t outputs, inputs, tokens = 1024;
};
// The head works on a part of the batch at a time.
constexpr std::array layers = {Layer{"qkv", 2304, 768}, Layer{"projection", 768, 768}, Layer{"up", 3072, 768},
                               Layer{"down", 768, 3072}, Layer{"head", 50257, 768, 512}};

struct Product {
    std::string name;
    Matmul matmul;
};

Matrix rows(std::int64_t count, std::int64_t width, DType dtype = DType::bfloat16) {
    return {dtype, count, width, width, 1};
}

std::vector<Product> products_of(const Layer& l, bool weights_by_outputs) {
    const Matrix weight = weights_by_outputs ? rows(l.outputs, l.inputs) : rows(l.inputs, l.outputs).transposed();
    const Matrix x = rows(l.tokens, l.inputs), dy = rows(l.tokens, l.outputs);
    std::vector<Product> products;
    auto add = [&](const char* name, const Matrix& left, const Matrix& right, DType out) {
        Matmul matmul;
        matmul.left = left, matmul.right = right, matmul.out = rows(left.rows, right.columns, out);
        products.push_back({name, matmul});
    };
    add("forward", x, weight.transposed(), DType::bfloat16);
    add("input gradient", dy, weight, DType::bfloat16);
    if (weights_by_outputs)
        add("weight gradient", dy.transposed(), x, DType::float32);
    else
        add("weight gradient", x.transposed(), dy, DType::float32);
    return products;
}

std::vector<BFloat16> numbers(std::int64_t count) {
    std::mt19937 random(1);
    std::vector<BFloat16> values(static_cast<std::size_t>(count));
    for (BFloat16& value : values) value = BFloat16(static_cast<float>(random() % 1000) / 1000.0f - 0.5f);
    return values;
}

double flops_per_second(const Matmul& p, const tiles::Arithmetic& arithmetic, double seconds) {
    const std::unique_ptr<Kernel> kernel = make_tiled(p, arithmetic);
    const std::vector<BFloat16> left = numbers(p.left.rows * p.left.columns),
                                right = numbers(p.right.rows * p.right.columns);
    std::vector<float> out(static_cast<std::size_t>(p.out.rows * p.out.columns));
    std::vector<float> workspace(static_cast<std::size_t>(kernel->workspace().count / 4 + 64));
    const std::array<const std::byte*, 2> inputs = {reinterpret_cast<const std::byte*>(left.data()),
                                                    reinterpret_cast<const std::byte*>(right.data())};
    const std::array<std::byte*, 1> outputs = {reinterpret_cast<std::byte*>(out.data())};
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
    Launch launch;
    launch.inputs = inputs, launch.outputs = outputs;
    launch.workspace = reinterpret_cast<std::byte*>(workspace.data()) + (256 - address % 256) % 256;
    kernel->run(launch);
    double best = 1e30;
    for (const double end = now() + seconds; now() < end;) {
        const double begin = now();
        kernel->run(launch);
        best = std::min(best, now() - begin);
    }
    return 2.0 * static_cast<double>(p.out.rows * p.out.columns * p.left.columns) / best;
}

void run(int threads, double seconds) {
    omp_set_num_threads(threads);
    for (const tiles::Arithmetic* arithmetic : {&tiles::avx512_bf16(), &tiles::amx()}) {
        if (!tiles::runs(*arithmetic)) continue;
        for (const Layer& layer : layers)
            for (const bool by_outputs : {true, false})
                for (const Product& product : products_of(layer, by_outputs))
                    fmt::print("{{\"arithmetic\": \"{}\", \"threads\": {}, \"layer\": \"{}\", \"weights\": \"{}\", "
                               "\"product\": \"{}\", \"gflops\": {:.0f}}}\n",
                               arithmetic->name, threads, layer.name, by_outputs ? "[N,K]" : "[K,N]", product.name,
                               flops_per_second(product.matmul, *arithmetic, seconds) * 1e-9);
    }
}

} // namespace
} // namespace tutti::backend::cpu

int main(int count, char** words) {
    tutti::backend::cpu::run(count > 1 ? std::atoi(words[1]) : omp_get_max_threads(),
                             count > 2 ? std::atof(words[2]) : 0.5);
}

// Attention on the GPU: which kernel is chosen for which sizes and why cuDNN is refused, how fast it and the own
// kernels are, how far their results are apart, and whether they compute the same bits again. q, k and v are views of
// one tensor, as in models. bench/attention_torch.py has the times of PyTorch for the same sizes.
//
//   cuda_attention [--repeats 20]
#include "backend/cuda/attention_choice.h"
#include "backend/device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" tutti::backend::Device* tutti_open_device(int local_rank);

namespace {

using namespace tutti;

struct Sizes {
    std::int64_t b, t, h, g, d;
    bool causal;
    double dropout = 0;
    std::int64_t window = 0, document = 0; // 0: none
    // As if nothing were ruled out but by the causal mask.
    double flops() const { return 4.0 * static_cast<double>(b * h * t * t * d) * (causal ? 0.5 : 1); }
};

const std::vector<Sizes> all_sizes = {
    {2, 96, 4, 2, 64, true},
    {16, 1024, 16, 16, 64, true},
    {2, 8192, 16, 16, 64, true},
    {2, 8192, 16, 16, 64, false},
    {16, 1024, 16, 16, 128, true},
    {2, 8192, 16, 16, 128, true},
    {2, 8192, 16, 16, 128, false},
    {2, 4096, 16, 16, 256, true},
    {4, 1000, 16, 16, 80, true},
    {1, 32768, 16, 4, 64, true},
    {1, 32768, 16, 4, 128, true},
    {.b = 32, .t = 1024, .h = 12, .g = 12, .d = 64, .causal = true},
    {.b = 32, .t = 1024, .h = 12, .g = 12, .d = 64, .causal = true, .dropout = 0.1},
    {.b = 32, .t = 512, .h = 16, .g = 16, .d = 64, .causal = false},
    {.b = 32, .t = 512, .h = 16, .g = 16, .d = 64, .causal = false, .dropout = 0.1},
    {.b = 2, .t = 8192, .h = 16, .g = 16, .d = 64, .causal = true, .document = 512},
    {.b = 2, .t = 8192, .h = 16, .g = 16, .d = 128, .causal = true, .document = 512},
    {.b = 1, .t = 32768, .h = 16, .g = 4, .d = 64, .causal = true, .window = 1024},
    {.b = 1, .t = 32768, .h = 16, .g = 4, .d = 128, .causal = true, .window = 1024},
    {1, 131072, 32, 8, 64, true},
};

float wide(std::uint16_t narrow) { return std::bit_cast<float>(std::uint32_t{narrow} << 16); }
std::uint16_t narrow(float wide) {
    const auto bits = std::bit_cast<std::uint32_t>(wide);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A tensor in device memory.
struct Buffer {
    std::unique_ptr<tutti::backend::Arena> arena;
    Buffer(const tutti::backend::Device& device, std::int64_t bytes) : arena(device.allocate({bytes})) {}
    std::byte* at(std::int64_t element) const { return arena->data() + element * 2; }
    std::byte* data() const { return arena->data(); }
};

// Random numbers that repeat after a prime number of elements.
Buffer random_buffer(const tutti::backend::Device& device, std::int64_t elements, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(elements));
    constexpr std::size_t period = 1'000'003;
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = i < period ? narrow(normal(engine)) : values[i - period];
    Buffer buffer(device, elements * 2);
    device.copy_in(buffer.data(), std::as_bytes(std::span(values)));
    return buffer;
}

std::vector<std::byte> fetch(const tutti::backend::Device& device, const Buffer& buffer) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.arena->size().count));
    device.copy_out(bytes, buffer.data());
    return bytes;
}

// The largest difference, relative to the largest value.
double difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b, bool is_wide) {
    double largest = 0, most = 0;
    const std::size_t size = is_wide ? 4 : 2;
    auto value = [&](const std::vector<std::byte>& bytes, std::size_t i) -> double {
        std::uint32_t bits = 0;
        std::memcpy(&bits, bytes.data() + i, size);
        return is_wide ? std::bit_cast<float>(bits) : wide(static_cast<std::uint16_t>(bits));
    };
    for (std::size_t i = 0; i < a.size(); i += size) {
        const double x = value(a, i), y = value(b, i);
        largest = std::max(largest, std::abs(x));
        const double apart = std::abs(x - y);
        most = std::isfinite(apart) ? std::max(most, apart) : std::numeric_limits<double>::infinity();
    }
    return most / largest;
}

class Runner {
  public:
    Runner(const tutti::backend::Device& device, const Sizes& z, int repeats)
        : device_(device), queue_(device.make_queue()), z_(z), repeats_(z.flops() > 1e13 ? 1 : repeats),
          qkv_(random_buffer(device, z.b * z.t * width(), 1)), dout_(random_buffer(device, outs(), 2)),
          documents_(device, z.b * z.t * 4), scalars_(device, sizeof(tutti::StepScalars)) {
        if (z.document == 0) return;
        std::vector<std::int32_t> begins(static_cast<std::size_t>(z.b * z.t));
        for (std::size_t i = 0; i < begins.size(); ++i) {
            const auto position = static_cast<std::int64_t>(i) % z.t;
            begins[i] = static_cast<std::int32_t>(position / z.document * z.document);
        }
        device.copy_in(documents_.data(), std::as_bytes(std::span(begins)));
    }

    void run() {
        fmt::print("b {} t {} h {} g {} d {}{}{}{}{}\n", z_.b, z_.t, z_.h, z_.g, z_.d, z_.causal ? " causal" : "",
                   z_.dropout > 0 ? fmt::format(" dropout {}", z_.dropout) : "",
                   z_.window > 0 ? fmt::format(" window {}", z_.window) : "",
                   z_.document > 0 ? fmt::format(" documents of {}", z_.document) : "");
        const Results chosen = run_both(""), own = run_both("own");
        fmt::print("  apart: out {:.1e} lse {:.1e} dq {:.1e} dk {:.1e} dv {:.1e}\n", apart(chosen, own, 0),
                   apart(chosen, own, 1), apart(chosen, own, 2), apart(chosen, own, 3), apart(chosen, own, 4));
    }

  private:
    using Results = std::vector<std::vector<std::byte>>; // out, lse, dq, dk, dv

    std::int64_t width() const { return (z_.h + 2 * z_.g) * z_.d; }
    std::int64_t outs() const { return z_.b * z_.t * z_.h * z_.d; }
    static double apart(const Results& a, const Results& b, std::size_t i) { return difference(a[i], b[i], i == 1); }

    tutti::backend::Operand dense(tutti::DType dtype, const tutti::Shape& shape) const {
        return {{dtype, shape}, tutti::dense_strides(shape)};
    }
    tutti::backend::Operand view(std::int64_t heads) const {
        return {{tutti::DType::bfloat16, {z_.b, z_.t, heads, z_.d}}, {z_.t * width(), width(), z_.d, 1}};
    }

    Results run_both(const std::string& engine) {
        tutti::backend::KernelRequest request;
        request.attributes = {{"causal", z_.causal}, {"scale", 1 / std::sqrt(static_cast<double>(z_.d))}};
        if (!engine.empty()) request.attributes.set("engine", engine);
        if (z_.dropout > 0) request.attributes.set("dropout", z_.dropout);
        if (z_.window > 0) request.attributes.set("window", z_.window);
        if (z_.document > 0) request.attributes.set("takes", std::string("documents"));
        const tutti::backend::Operand begins = dense(tutti::DType::int32, {z_.b, z_.t});
        auto with_documents = [&](auto operands, const auto& one) {
            if (z_.document > 0) operands.insert(operands.end(), 2, one);
            return operands;
        };
        const tutti::backend::Operand out = dense(tutti::DType::bfloat16, {z_.b, z_.t, z_.h, z_.d});
        const tutti::backend::Operand lse = dense(tutti::DType::float32, {z_.b, z_.h, z_.t});
        const tutti::backend::Operand dkv = dense(tutti::DType::bfloat16, {z_.b, z_.t, z_.g, z_.d});
        Buffer out_data(device_, outs() * 2), lse_data(device_, z_.b * z_.h * z_.t * 4), dq(device_, outs() * 2);
        Buffer dk(device_, dkv.elements() * 2), dv(device_, dkv.elements() * 2);
        const std::byte *q = qkv_.at(0), *k = qkv_.at(z_.h * z_.d), *v = qkv_.at((z_.h + z_.g) * z_.d);
        const std::byte* const of_documents = documents_.data();

        request.op = "attention";
        request.inputs = with_documents(std::vector{view(z_.h), view(z_.g), view(z_.g)}, begins);
        request.outputs = {out, lse};
        measure(request, with_documents(std::vector{q, k, v}, of_documents), {out_data.data(), lse_data.data()},
                z_.flops());
        Results results = {fetch(device_, out_data), fetch(device_, lse_data)};

        request.op = "attention_gradient";
        request.inputs = with_documents(std::vector{out, view(z_.h), view(z_.g), view(z_.g), out, lse}, begins);
        request.outputs = {out, dkv, dkv};
        auto gradients = [&] { return Results{fetch(device_, dq), fetch(device_, dk), fetch(device_, dv)}; };
        const std::byte *dout = dout_.data(), *out_bytes = out_data.data(), *lse_bytes = lse_data.data();
        const auto again =
            measure(request, with_documents(std::vector{dout, q, k, v, out_bytes, lse_bytes}, of_documents),
                    {dq.data(), dk.data(), dv.data()}, 2.5 * z_.flops());
        const Results first = gradients();
        bool same = true;
        for (int i = 0; i < std::min(repeats_, 3); ++i) {
            again();
            same &= gradients() == first;
        }
        fmt::print("    the same gradients again: {}\n", same ? "yes" : "NO");
        results.insert(results.end(), first.begin(), first.end());
        return results;
    }

    // Returns a function that runs it once more.
    std::function<void()> measure(const tutti::backend::KernelRequest& request, std::vector<const std::byte*> inputs,
                                  std::vector<std::byte*> outputs, double flops) {
        std::shared_ptr<const tutti::backend::Kernel> kernel = device_.prepare(request);
        auto workspace = std::make_shared<Buffer>(device_, std::max<std::int64_t>(kernel->workspace().count, 1));
        auto once = [=, this] {
            kernel->run({.inputs = inputs,
                         .outputs = outputs,
                         .workspace = workspace->data(),
                         .scalars = reinterpret_cast<tutti::StepScalars*>(scalars_.data()),
                         .queue = queue_.get()});
        };
        using Clock = std::chrono::steady_clock;
        for (int i = 0; i < std::min(repeats_, 3); ++i) once();
        queue_->synchronize();
        const auto begin = Clock::now();
        for (int i = 0; i < repeats_; ++i) once();
        queue_->synchronize();
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / repeats_;
        fmt::print("  {}: {}, {:.3f} ms, {:.0f} TFLOP/s, workspace {}\n", request.op,
                   tutti::backend::cuda::how_attention_runs(*kernel), seconds * 1e3, flops / seconds * 1e-12,
                   tutti::to_string(kernel->workspace()));
        return [=, this] {
            once();
            queue_->synchronize();
        };
    }

    const tutti::backend::Device& device_;
    std::unique_ptr<tutti::backend::Queue> queue_;
    Sizes z_;
    int repeats_;
    Buffer qkv_, dout_, documents_, scalars_;
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Attention on the GPU: engines, times and differences"};
    int repeats = 20;
    app.add_option("--repeats", repeats, "runs that are timed together");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::unique_ptr<tutti::backend::Device> device(tutti_open_device(0));
        for (const Sizes& sizes : all_sizes) Runner(*device, sizes, repeats).run();
    } catch (const std::exception& error) {
        fmt::print(stderr, "cuda_attention: {}\n", error.what());
        return 1;
    }
}

// What a step does beyond the model: the global gradient norm and AdamW, one pass each over a chunk.
#include "backend/cpu/kernels.h"
#include "backend/random_stream.h"

#include <algorithm>
#include <cmath>

namespace tutti::backend::cpu {
namespace {

// Sums of blocks of fixed size, in double, added in order.
template <class T>
class SquaredNorm : public Kernel {
  public:
    explicit SquaredNorm(const KernelRequest& request) : count_(request.inputs[0].elements()) {}
    Bytes workspace() const override { return {blocks() * static_cast<std::int64_t>(sizeof(double))}; }
    void run(const Launch& l) const override {
        auto* partial = reinterpret_cast<double*>(l.workspace);
        parallel_for(blocks(), block, [&](std::int64_t b) {
            partial[b] = simd().rows<T>().squared_sum(l.in<T>(0) + b * block, std::min(block, count_ - b * block));
        });
        double total = 0;
        for (std::int64_t b = 0; b < blocks(); ++b) total += partial[b];
        *l.out<double>(0) = total;
    }

  private:
    static constexpr std::int64_t block = 1 << 14;
    std::int64_t blocks() const { return (count_ + block - 1) / block; }
    std::int64_t count_;
};

void sum_step(const KernelRequest& request, const Launch& l) {
    double* sums = l.out<double>(0);
    const std::int64_t squares = request.attributes.integer("squares");
    sums[0] = sums[1] = 0;
    for (std::int64_t i = 0; i < squares; ++i) sums[0] += l.in<double>(0)[i];
    if (request.attributes.flag("loss")) {
        const std::size_t at = squares > 0 ? 1 : 0;
        const bool wide = request.inputs[at].type.dtype == DType::float64;
        sums[1] = wide ? *l.in<double>(at) : static_cast<double>(*l.in<float>(at));
    }
    sums[2] = l.scalars->stop;
}

void finish_norm(const KernelRequest&, const Launch& l) {
    StepScalars& s = *l.scalars;
    const double* sums = l.in<double>(0);
    s.gradient_norm = std::sqrt(sums[0]) / s.loss_scale;
    s.loss = sums[1] * s.inverse_tokens;
    s.stop = sums[2];
    s.finite = std::isfinite(s.gradient_norm) && std::isfinite(s.loss);
    s.clip_factor = s.max_norm > 0 ? std::min(1.0, s.max_norm / (s.gradient_norm + 1e-6)) : 1;
    *l.out<double>(0) = s.gradient_norm;
}

class Adamw : public Kernel {
  public:
    explicit Adamw(const KernelRequest& request)
        : function_(
              simd().adamw(request.inputs[0].type.dtype, request.outputs[0].type.dtype, request.outputs[1].type.dtype)),
          draws_(request.attributes.has("streams")), restores_(request.attributes.flag("restores")) {
        const bool has_master = request.outputs.size() == 4;
        if (function_ == nullptr || request.outputs[2].type.dtype != request.outputs[1].type.dtype ||
            (has_master && request.outputs[3].type.dtype != DType::float32) ||
            (restores_ && (!has_master || request.outputs[0].type.dtype != DType::bfloat16)))
            fail_unsupported(backend_name, request);
        // Ranges are cut into pieces, so that threads share them evenly whatever their sizes.
        const std::vector<std::int64_t>& ranges = request.attributes.integers("ranges");
        constexpr std::int64_t piece = 1 << 14;
        auto first = [&](std::size_t r) {
            return request.attributes.has("firsts") ? request.attributes.integers("firsts")[r / 3] : 0;
        };
        for (std::size_t r = 0; r + 2 < ranges.size(); r += 3)
            for (std::int64_t begin = ranges[r]; begin < ranges[r + 1]; begin += piece)
                pieces_.push_back(
                    {begin, std::min(begin + piece, ranges[r + 1]), ranges[r + 2] != 0,
                     draws_ ? static_cast<std::uint64_t>(request.attributes.integers("streams")[r / 3]) : 0,
                     begin - ranges[r] + first(r)});
    }

    void run(const Launch& l) const override {
        const StepScalars& s = *l.scalars;
        if (s.finite == 0) return restores_ ? restore(l) : void();
        const auto t = static_cast<double>(s.step + 1);
        AdamwStep step{
            .gradient_scale = static_cast<float>(s.clip_factor / s.loss_scale),
            .decay = 1,
            .beta1 = static_cast<float>(s.beta1),
            .beta2 = static_cast<float>(s.beta2),
            .rest1 = static_cast<float>(1 - s.beta1),
            .rest2 = static_cast<float>(1 - s.beta2),
            .step_size = static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, t))),
            .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, t))),
            .epsilon = static_cast<float>(s.epsilon),
        };
        AdamwStep decayed = step;
        decayed.decay = static_cast<float>(1 - s.learning_rate * s.weight_decay);
        const PhiloxKey key = key_of(s);
        auto* master = l.outputs.size() == 4 ? l.out<float>(3) : nullptr;
        parallel_for(static_cast<std::int64_t>(pieces_.size()), 1 << 14, [&](std::int64_t i) {
            const Piece& piece = pieces_[static_cast<std::size_t>(i)];
            const AdamwDraws draws{key, piece.stream, piece.first};
            function_(l.inputs[0], l.outputs[0], l.outputs[1], l.outputs[2], master, piece.begin, piece.end,
                      piece.decays ? decayed : step, draws_ ? &draws : nullptr);
        });
    }

  private:
    struct Piece {
        std::int64_t begin, end;
        bool decays;
        std::uint64_t stream;
        std::int64_t first; // number of its first element within the tensor
    };
    // Gradients lie where the weights were.
    void restore(const Launch& l) const {
        parallel_for(static_cast<std::int64_t>(pieces_.size()), 1 << 14, [&](std::int64_t i) {
            const Piece& piece = pieces_[static_cast<std::size_t>(i)];
            simd().rows<BFloat16>().narrow(l.out<float>(3) + piece.begin, l.out<BFloat16>(0) + piece.begin,
                                           piece.end - piece.begin);
        });
    }

    AdamwFunction function_;
    bool draws_, restores_;
    std::vector<Piece> pieces_;
};

} // namespace

void add_step_kernels(KernelTable& table) {
    add_floating<SquaredNorm>(table, "squared_norm");
    table.add("sum_step", KernelFunction(sum_step));
    table.add("finish_norm", KernelFunction(finish_norm));
    table.add("adamw", PrepareKernel([](const KernelRequest& request) { return std::make_unique<Adamw>(request); }));
}

} // namespace tutti::backend::cpu

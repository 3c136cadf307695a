// What a step does beyond the model: accumulation, the global gradient norm, AdamW.
#include "backend/random_stream.h"
#include "backend/reference/dense.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::backend::reference {
namespace {

void accumulate(const Call& c) { std::copy_n(c.in[0].data, c.in[0].elements(), c.out[0].data); } // storing adds

void squared_norm(const Call& c) {
    for (std::int64_t i = 0; i < c.in[0].elements(); ++i) c.out[0][0] += c.in[0][i] * c.in[0][i];
}

void sum_step(const Call& c) {
    const std::int64_t squares = c.attributes.integer("squares");
    for (std::int64_t i = 0; i < squares; ++i) c.out[0][0] += c.in[0][i];
    if (c.attributes.flag("loss")) c.out[0][1] = c.in[squares > 0 ? 1 : 0][0];
    c.out[0][2] = c.scalars.stop;
}

void finish_norm(const Call& c) {
    StepScalars& s = c.scalars;
    s.gradient_norm = std::sqrt(c.in[0][0]) / s.loss_scale;
    s.loss = c.in[0][1] * s.inverse_tokens;
    s.stop = c.in[0][2];
    s.finite = std::isfinite(s.gradient_norm) && std::isfinite(s.loss);
    s.clip_factor = s.max_norm > 0 ? std::min(1.0, s.max_norm / (s.gradient_norm + 1e-6)) : 1;
    c.out[0][0] = s.gradient_norm;
}

// Narrow numbers that are not a copy of wide ones are rounded stochastically.
double stored(const Tensor& tensor, double value, std::uint32_t random) {
    if (tensor.dtype != DType::bfloat16) return value;
    BFloat16 rounded;
    rounded.bits = round_stochastically(std::bit_cast<std::uint32_t>(static_cast<float>(value)), random);
    return static_cast<double>(static_cast<float>(rounded));
}

// p -= lr wd p where decayed;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps), t from 1. The weights are the master's, rounded.
void adamw(const Call& c) {
    const StepScalars& s = c.scalars;
    const bool restores = s.finite == 0 && c.attributes.flag("restores");
    if (s.finite == 0 && !restores) return;
    const Tensor &gradients = c.in[0], &weights = c.out[0], &moments1 = c.out[1], &moments2 = c.out[2];
    const Tensor& master = c.out.size() == 4 ? c.out[3] : weights;
    const auto t = static_cast<double>(s.step + 1);
    const double correction1 = 1 - std::pow(s.beta1, t), correction2 = std::sqrt(1 - std::pow(s.beta2, t));
    const std::vector<std::int64_t>& ranges = c.attributes.integers("ranges");
    const bool draws = c.attributes.has("streams");
    for (std::size_t r = 0; r + 2 < ranges.size(); r += 3) {
        const std::int64_t first = c.attributes.has("firsts") ? c.attributes.integers("firsts")[r / 3] : 0;
        const auto stream = draws ? static_cast<std::uint64_t>(c.attributes.integers("streams")[r / 3]) : 0;
        for (std::int64_t i = ranges[r]; i < ranges[r + 1]; ++i) {
            if (restores) {
                weights[i] = master[i];
                continue;
            }
            const double g = gradients[i] * s.clip_factor / s.loss_scale;
            double &m = moments1[i], &v = moments2[i], &p = master[i];
            if (ranges[r + 2] != 0) p *= 1 - s.learning_rate * s.weight_decay;
            m = s.beta1 * m + (1 - s.beta1) * g;
            v = s.beta2 * v + (1 - s.beta2) * g * g;
            p -= s.learning_rate / correction1 * m / (std::sqrt(v) / correction2 + s.epsilon);
            weights[i] = p;
            if (!draws) continue;
            auto bits = [&](Rounded what) {
                const std::int64_t element = i - ranges[r] + first;
                const auto block = static_cast<std::uint64_t>(element / update_group);
                return update_bits(update_words(key_of(s), stream, what, block),
                                   static_cast<int>(element % update_group));
            };
            if (c.out.size() == 3) weights[i] = stored(weights, p, bits(Rounded::weight));
            m = stored(moments1, m, bits(Rounded::moment1));
            v = stored(moments2, v, bits(Rounded::moment2));
        }
    }
}

} // namespace

std::vector<Formula> step_formulas() {
    return {{"accumulate", accumulate},
            {"squared_norm", squared_norm},
            {"sum_step", sum_step},
            {"finish_norm", finish_norm},
            {"adamw", adamw, true}};
}

} // namespace tutti::backend::reference

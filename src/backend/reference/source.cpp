// Operators that make tensors from nothing but attributes, step scalars and random numbers.
#include "backend/random_stream.h"
#include "backend/reference/dense.h"

#include <cmath>

namespace tutti::backend::reference {
namespace {

void fill(const Call& c) { std::fill_n(c.out[0].data, c.out[0].elements(), c.attributes.real("value")); }

void iota(const Call& c) {
    const std::int64_t start = c.attributes.integer("start", 0);
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] = static_cast<double>(start + i);
}

// The angle is rounded to float32, as the models' authors compute it.
void rotary_table(const Call& c) {
    const std::vector<double>& frequencies = c.attributes.reals("frequencies");
    const std::int64_t start = c.attributes.integer("start", 0);
    const double scale = c.attributes.real("scale", 1);
    for (std::int64_t t = 0; t < c.out[0].rows(); ++t)
        for (std::int64_t i = 0; i < c.out[0].back(); ++i) {
            const float angle =
                static_cast<float>(start + t) * static_cast<float>(frequencies[static_cast<std::size_t>(i)]);
            c.out[0].row(t)[i] = scale * std::cos(static_cast<double>(angle));
            c.out[1].row(t)[i] = scale * std::sin(static_cast<double>(angle));
        }
}

// loss_seed, the only field there is: the gradient of the step's mean loss with respect to its sum.
void step_scalar(const Call& c) { c.out[0][0] = c.scalars.loss_scale * c.scalars.inverse_tokens; }

// An element is numbered within the whole sample, of which x may hold a part.
void dropout(const Call& c) {
    const Tensor& x = c.in[0];
    const double p = c.attributes.real("p");
    const PhiloxKey key = key_of(c.scalars);
    const std::int64_t first = c.scalars.first_sample + c.samples_before + c.attributes.integer("first_sample", 0);
    std::int64_t i = 0;
    for_each_index(x.shape, [&](const Shape& index) {
        std::int64_t element = 0;
        for (int d = 1; d < index.rank(); ++d) {
            const auto at = static_cast<std::size_t>(d - 1);
            const std::int64_t size = c.attributes.has("whole") ? c.attributes.integers("whole")[at] : x.shape[d];
            const std::int64_t offset = c.attributes.has("offsets") ? c.attributes.integers("offsets")[at] : 0;
            element = element * size + offset + index[d];
        }
        const bool kept = keeps(key, stream_of(c.request.source, first + index[0]), element, p);
        c.out[0][i] = kept ? x[i] / (1 - p) : 0;
        ++i;
    });
}

} // namespace

std::vector<Formula> source_formulas() {
    return {{"fill", fill}, {"iota", iota}, {"rotary_table", rotary_table}, {"step_scalar", step_scalar}};
}

std::vector<Formula> random_formulas() { return {{"dropout", dropout}}; }

} // namespace tutti::backend::reference

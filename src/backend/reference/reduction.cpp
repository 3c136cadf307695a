// Reductions over dimensions, softmax over rows, and cumulative sums.
#include "backend/reference/dense.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::backend::reference {
namespace {

// Where an element of x goes in the reduced tensor: the reduced dimensions do not count.
template <class Combine>
void reduce(const Call& c, double start, Combine combine) {
    const Tensor &x = c.in[0], &y = c.out[0];
    Shape kept = x.shape;
    for (std::int64_t dim : c.attributes.integers("dims"))
        kept[static_cast<int>(dim < 0 ? dim + x.shape.rank() : dim)] = 1;
    std::fill_n(y.data, y.elements(), start);
    const double* from = x.data;
    for_each_index(x.shape, [&](const Shape& index) {
        double& to = y[offset_of(kept, index)];
        to = combine(to, *from++);
    });
}

void reduce_sum(const Call& c) {
    reduce(c, 0, [](double a, double b) { return a + b; });
}

void reduce_mean(const Call& c) {
    reduce_sum(c);
    const double count = static_cast<double>(c.in[0].elements()) / static_cast<double>(c.out[0].elements());
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] /= count;
}

void reduce_max(const Call& c) {
    reduce(c, -std::numeric_limits<double>::infinity(),
           [](double a, double b) { return a >= b || std::isnan(a) ? a : b; });
}

void softmax(const Call& c) {
    const Tensor &x = c.in[0], &y = c.out[0];
    for (std::int64_t i = 0; i < x.rows(); ++i) {
        const double most = *std::ranges::max_element(x.row(i));
        double sum = 0;
        for (double value : x.row(i)) sum += std::exp(value - most);
        for (std::int64_t j = 0; j < x.back(); ++j) y.row(i)[j] = std::exp(x.row(i)[j] - most) / sum;
    }
}

// dx = y (dy - sum(dy y))
void softmax_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &y = c.in[1];
    for (std::int64_t i = 0; i < y.rows(); ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < y.back(); ++j) sum += dy.row(i)[j] * y.row(i)[j];
        for (std::int64_t j = 0; j < y.back(); ++j) c.out[0].row(i)[j] = y.row(i)[j] * (dy.row(i)[j] - sum);
    }
}

// y[i] = x[0] + ... + x[i] along dim; reverse: x[i] + ... + x[n - 1]
void cumsum(const Call& c) {
    const Tensor &x = c.in[0], &y = c.out[0];
    const int dim = dim_of(c, x.shape);
    const bool reverse = c.attributes.flag("reverse");
    double* to = y.data;
    for_each_index(x.shape, [&](const Shape& index) {
        const std::int64_t first = reverse ? index[dim] : 0, last = reverse ? x.shape[dim] - 1 : index[dim];
        Shape from = index;
        for (from[dim] = first; from[dim] <= last; ++from[dim]) *to += x[offset_of(x.shape, from)];
        ++to;
    });
}

} // namespace

std::vector<Formula> reduction_formulas() {
    return {{"reduce_sum", reduce_sum}, {"reduce_mean", reduce_mean},           {"reduce_max", reduce_max},
            {"softmax", softmax},       {"softmax_gradient", softmax_gradient}, {"cumsum", cumsum}};
}

} // namespace tutti::backend::reference

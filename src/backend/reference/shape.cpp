// The operators that really move elements: concat, contiguous and the gradient of slice.
#include "backend/reference/dense.h"

namespace tutti::backend::reference {
namespace {

void contiguous(const Call& c) { std::copy_n(c.in[0].data, c.in[0].elements(), c.out[0].data); }

// Puts x into y at `start` along dim.
void place(const Tensor& x, const Tensor& y, int dim, std::int64_t start) {
    const double* from = x.data;
    for_each_index(x.shape, [&](const Shape& index) {
        Shape at = index;
        at[dim] += start;
        y[offset_of(y.shape, at)] = *from++;
    });
}

void concat(const Call& c) {
    const int dim = dim_of(c, c.out[0].shape);
    std::int64_t start = 0;
    for (const Tensor& x : c.in) {
        place(x, c.out[0], dim, start);
        start += x.shape[dim];
    }
}

void slice_gradient(const Call& c) {
    place(c.in[0], c.out[0], dim_of(c, c.out[0].shape), c.attributes.integer("start"));
}

} // namespace

std::vector<Formula> shape_formulas() {
    return {{"contiguous", contiguous}, {"concat", concat}, {"slice_gradient", slice_gradient}};
}

} // namespace tutti::backend::reference

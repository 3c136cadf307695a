// Look-ups by index and their gradients, which add into where the forward took from.
#include "backend/reference/dense.h"
#include "base/error.h"

namespace tutti::backend::reference {
namespace {

// Rows of other parts of the table read as zero.
void embedding(const Call& c) {
    const Tensor &table = c.in[0], &ids = c.in[1], &y = c.out[0];
    const std::int64_t first = c.attributes.integer("first_row", 0);
    for (std::int64_t i = 0; i < ids.elements(); ++i) {
        const std::int64_t row = static_cast<std::int64_t>(ids[i]) - first;
        if (row < 0 || row >= table.shape[0]) continue;
        std::ranges::copy(table.row(row), y.row(i).begin());
    }
}

// The padding row, numbered in the whole table, gets no gradient.
void embedding_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &ids = c.in[1], &dtable = c.out[0];
    const std::int64_t first = c.attributes.integer("first_row", 0);
    for (std::int64_t i = 0; i < ids.elements(); ++i) {
        const auto id = static_cast<std::int64_t>(ids[i]);
        if (id < first || id >= first + dtable.shape[0]) continue;
        if (c.attributes.has("padding_row") && id == c.attributes.integer("padding_row")) continue;
        for (std::int64_t j = 0; j < dy.back(); ++j) dtable.row(id - first)[j] += dy.row(i)[j];
    }
}

// Where element `index` of the picked tensor lies in the whole one.
std::int64_t picked_from(const Shape& whole, const Shape& index, int dim, double pick) {
    Shape at = index;
    at[dim] = static_cast<std::int64_t>(pick);
    TUTTI_CHECK(at[dim] >= 0 && at[dim] < whole[dim], "gather of {} from {} elements", at[dim], whole[dim]);
    return offset_of(whole, at);
}

void gather(const Call& c) {
    const Tensor &x = c.in[0], &picks = c.in[1], &y = c.out[0];
    const int dim = dim_of(c, x.shape);
    std::int64_t i = 0;
    for_each_index(y.shape, [&](const Shape& index) {
        y[i] = x[picked_from(x.shape, index, dim, picks[i])];
        ++i;
    });
}

void gather_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &picks = c.in[1], &dx = c.out[0];
    const int dim = dim_of(c, dx.shape);
    std::int64_t i = 0;
    for_each_index(dy.shape, [&](const Shape& index) {
        dx[picked_from(dx.shape, index, dim, picks[i])] += dy[i];
        ++i;
    });
}

} // namespace

std::vector<Formula> index_formulas() {
    return {{"embedding", embedding},
            {"embedding_gradient", embedding_gradient},
            {"gather", gather},
            {"gather_gradient", gather_gradient}};
}

} // namespace tutti::backend::reference

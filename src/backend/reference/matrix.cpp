// Matrix products. Row-major throughout: x [m,k], weight [n,k], dy [m,n].
#include "backend/reference/dense.h"

namespace tutti::backend::reference {
namespace {

// y[m][n] = sum_k a[m][k] b[k][n], per batch
void matmul(const Call& c) {
    const Tensor &a = c.in[0], &b = c.in[1], &y = c.out[0];
    const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
    const int rank = y.shape.rank();
    const std::int64_t m = y.shape[rank - 2], n = y.shape[rank - 1], k = a.shape[ta ? rank - 2 : rank - 1];
    for (std::int64_t batch = 0; batch < y.elements() / (m * n); ++batch)
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (std::int64_t l = 0; l < k; ++l)
                    sum += a[batch * m * k + (ta ? l * m + i : i * k + l)] *
                           b[batch * k * n + (tb ? j * k + l : l * n + j)];
                y[(batch * m + i) * n + j] = sum;
            }
}

// y[i][j] = sum_k x[i][k] w[j][k] (+ bias[j])
void linear(const Call& c) {
    const Tensor &x = c.in[0], &w = c.in[1], &y = c.out[0];
    for (std::int64_t i = 0; i < y.rows(); ++i)
        for (std::int64_t j = 0; j < y.back(); ++j) {
            double sum = c.in.size() == 3 ? c.in[2][j] : 0;
            for (std::int64_t l = 0; l < x.back(); ++l) sum += x.row(i)[l] * w.row(j)[l];
            y.row(i)[j] = sum;
        }
}

// dx[i][k] = sum_n dy[i][n] w[n][k] (+ addend[i][k])
void linear_input_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &w = c.in[1], &dx = c.out[0];
    if (c.in.size() == 3) std::copy_n(c.in[2].data, dx.elements(), dx.data);
    for (std::int64_t i = 0; i < dy.rows(); ++i)
        for (std::int64_t j = 0; j < dy.back(); ++j)
            for (std::int64_t l = 0; l < dx.back(); ++l) dx.row(i)[l] += dy.row(i)[j] * w.row(j)[l];
}

// dw[n][k] = sum_i dy[i][n] x[i][k]
void linear_weight_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &x = c.in[1], &dw = c.out[0];
    for (std::int64_t i = 0; i < dy.rows(); ++i)
        for (std::int64_t j = 0; j < dy.back(); ++j)
            for (std::int64_t l = 0; l < x.back(); ++l) dw.row(j)[l] += dy.row(i)[j] * x.row(i)[l];
}

void bias_gradient(const Call& c) {
    const Tensor& dy = c.in[0];
    for (std::int64_t i = 0; i < dy.rows(); ++i)
        for (std::int64_t j = 0; j < dy.back(); ++j) c.out[0][j] += dy.row(i)[j];
}

} // namespace

std::vector<Formula> matrix_formulas() {
    return {{"matmul", matmul},
            {"linear", linear},
            {"linear_input_gradient", linear_input_gradient},
            {"linear_weight_gradient", linear_weight_gradient},
            {"bias_gradient", bias_gradient}};
}

} // namespace tutti::backend::reference

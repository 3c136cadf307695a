// Normalisation of rows of length h. The two norms differ in whether the mean is taken away first.
#include "backend/reference/dense.h"

#include <cmath>

namespace tutti::backend::reference {
namespace {

double mean_of(std::span<const double> row) {
    double sum = 0;
    for (double value : row) sum += value;
    return sum / static_cast<double>(row.size());
}

// y = (x - mean) rstd scale + shift, rstd = 1 / sqrt(variance + eps)
void layer_norm(const Call& c) {
    const Tensor &x = c.in[0], &y = c.out[0], &means = c.out[1], &rstds = c.out[2];
    const bool affine = c.in.size() == 3;
    for (std::int64_t i = 0; i < x.rows(); ++i) {
        const double mean = mean_of(x.row(i));
        double variance = 0;
        for (double value : x.row(i)) variance += (value - mean) * (value - mean);
        variance /= static_cast<double>(x.back());
        const double rstd = 1 / std::sqrt(variance + c.attributes.real("eps"));
        for (std::int64_t j = 0; j < x.back(); ++j) {
            const double normal = (x.row(i)[j] - mean) * rstd;
            y.row(i)[j] = affine ? normal * c.in[1][j] + c.in[2][j] : normal;
        }
        means[i] = mean;
        rstds[i] = rstd;
    }
}

// With g = dy scale and n the normalised row: dx = rstd (g - [mean(g)] - n mean(g n)); mean(g) only where the mean was
// taken away.
void input_gradient_row(std::span<const double> g, std::span<const double> n, double rstd, bool centred,
                        std::span<double> dx) {
    double projection = 0;
    for (std::size_t j = 0; j < g.size(); ++j) projection += g[j] * n[j];
    projection /= static_cast<double>(g.size());
    const double shift = centred ? mean_of(g) : 0;
    for (std::size_t j = 0; j < g.size(); ++j) dx[j] = rstd * (g[j] - shift - n[j] * projection);
}

void layer_norm_input_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &x = c.in[1], &mean = c.in[2], &rstd = c.in[3];
    std::vector<double> g(static_cast<std::size_t>(x.back())), n(g.size());
    for (std::int64_t i = 0; i < x.rows(); ++i) {
        for (std::int64_t j = 0; j < x.back(); ++j) {
            g[static_cast<std::size_t>(j)] = dy.row(i)[j] * (c.in.size() == 5 ? c.in[4][j] : 1);
            n[static_cast<std::size_t>(j)] = (x.row(i)[j] - mean[i]) * rstd[i];
        }
        input_gradient_row(g, n, rstd[i], true, c.out[0].row(i));
    }
}

void layer_norm_weight_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &x = c.in[1], &mean = c.in[2], &rstd = c.in[3];
    for (std::int64_t i = 0; i < x.rows(); ++i)
        for (std::int64_t j = 0; j < x.back(); ++j) {
            c.out[0][j] += dy.row(i)[j] * (x.row(i)[j] - mean[i]) * rstd[i];
            c.out[1][j] += dy.row(i)[j];
        }
}

// y = x rstd scale, rstd = 1 / sqrt(mean(x^2) + eps); the scale counts from 1 with unit_offset
void rms_norm(const Call& c) {
    const Tensor &x = c.in[0], &scale = c.in[1];
    const double offset = c.attributes.flag("unit_offset") ? 1 : 0;
    for (std::int64_t i = 0; i < x.rows(); ++i) {
        double squares = 0;
        for (double value : x.row(i)) squares += value * value;
        const double rstd = 1 / std::sqrt(squares / static_cast<double>(x.back()) + c.attributes.real("eps"));
        for (std::int64_t j = 0; j < x.back(); ++j) c.out[0].row(i)[j] = x.row(i)[j] * rstd * (offset + scale[j]);
        c.out[1][i] = rstd;
    }
}

void rms_norm_input_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &x = c.in[1], &rstd = c.in[2], &scale = c.in[3];
    const double offset = c.attributes.flag("unit_offset") ? 1 : 0;
    std::vector<double> g(static_cast<std::size_t>(x.back())), n(g.size());
    for (std::int64_t i = 0; i < x.rows(); ++i) {
        for (std::int64_t j = 0; j < x.back(); ++j) {
            g[static_cast<std::size_t>(j)] = dy.row(i)[j] * (offset + scale[j]);
            n[static_cast<std::size_t>(j)] = x.row(i)[j] * rstd[i];
        }
        input_gradient_row(g, n, rstd[i], false, c.out[0].row(i));
    }
}

void rms_norm_weight_gradient(const Call& c) {
    const Tensor &dy = c.in[0], &x = c.in[1], &rstd = c.in[2];
    for (std::int64_t i = 0; i < x.rows(); ++i)
        for (std::int64_t j = 0; j < x.back(); ++j) c.out[0][j] += dy.row(i)[j] * x.row(i)[j] * rstd[i];
}

// ---- Fused forms

void add_rounded(const Tensor& a, const Tensor& b, const Tensor& sum) {
    for (std::int64_t i = 0; i < sum.elements(); ++i) sum[i] = rounded(a[i] + b[i], sum.dtype);
}

void add_layer_norm(const Call& c) {
    add_rounded(c.in[0], c.in[1], c.out[0]);
    layer_norm(on(c, std::vector{c.out[0], c.in[2], c.in[3]}, c.out.subspan(1)));
}

void add_rms_norm(const Call& c) {
    add_rounded(c.in[0], c.in[1], c.out[0]);
    rms_norm(on(c, std::vector{c.out[0], c.in[2]}, c.out.subspan(1)));
}

// What the input gradient is added to, where there is something.
void add_residual(const Call& c, std::size_t residual) {
    if (c.in.size() <= residual) return;
    for (std::int64_t i = 0; i < c.out[0].elements(); ++i) c.out[0][i] += c.in[residual][i];
}

void layer_norm_gradient(const Call& c) {
    layer_norm_input_gradient(on(c, c.in.first(5), c.out.first(1)));
    layer_norm_weight_gradient(on(c, c.in.first(4), c.out.subspan(1)));
    add_residual(c, 5);
}

void rms_norm_gradient(const Call& c) {
    rms_norm_input_gradient(on(c, c.in.first(4), c.out.first(1)));
    rms_norm_weight_gradient(on(c, c.in.first(3), c.out.subspan(1)));
    add_residual(c, 4);
}

} // namespace

std::vector<Formula> norm_formulas() {
    return {{"add_layer_norm", add_layer_norm},
            {"add_rms_norm", add_rms_norm},
            {"layer_norm_gradient", layer_norm_gradient, false, 1},
            {"rms_norm_gradient", rms_norm_gradient, false, 1},
            {"layer_norm", layer_norm},
            {"layer_norm_input_gradient", layer_norm_input_gradient},
            {"layer_norm_weight_gradient", layer_norm_weight_gradient},
            {"rms_norm", rms_norm},
            {"rms_norm_input_gradient", rms_norm_input_gradient},
            {"rms_norm_weight_gradient", rms_norm_weight_gradient}};
}

} // namespace tutti::backend::reference

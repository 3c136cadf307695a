// Cross-entropy over rows of v logits: loss = sum over the rows that count of lse - logit[target].
#include "backend/reference/dense.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tutti::backend::reference {
namespace {

// The row's target, counted from the first class of this part: outside where it is another part's class. Nothing where
// it is ignored.
std::optional<std::int64_t> target_of(const Call& c, double target, std::int64_t held) {
    const auto id = static_cast<std::int64_t>(target);
    if (id == c.attributes.integer("ignore_index", -100)) return std::nullopt;
    const std::int64_t classes = c.attributes.integer("classes", held);
    TUTTI_CHECK(id >= 0 && id < classes, "target {} of {} classes", id, classes);
    return id - c.attributes.integer("first_class", 0);
}

double log_sum_exp(std::span<const double> row) {
    const double most = *std::ranges::max_element(row);
    double sum = 0;
    for (double logit : row) sum += std::exp(logit - most);
    return most + std::log(sum);
}

void cross_entropy(const Call& c) {
    const Tensor &logits = c.in[0], &targets = c.in[1], &lse = c.out[1];
    for (std::int64_t i = 0; i < logits.rows(); ++i) {
        lse[i] = log_sum_exp(logits.row(i));
        if (const auto target = target_of(c, targets[i], logits.back()))
            c.out[0][0] += lse[i] - logits.row(i)[static_cast<std::size_t>(*target)];
    }
}

// dlogits = dloss (softmax - onehot(target)); ignored rows get none
void cross_entropy_gradient(const Call& c) {
    const Tensor &logits = c.in[1], &targets = c.in[2], &lse = c.in[3];
    for (std::int64_t i = 0; i < logits.rows(); ++i) {
        const auto target = target_of(c, targets[i], logits.back());
        if (!target) continue;
        for (std::int64_t j = 0; j < logits.back(); ++j)
            c.out[0].row(i)[j] = c.in[0][0] * (std::exp(logits.row(i)[j] - lse[i]) - (j == *target ? 1 : 0));
    }
}

void cross_entropy_part(const Call& c) {
    const Tensor &logits = c.in[0], &targets = c.in[1], &statistics = c.out[0];
    for (std::int64_t i = 0; i < logits.rows(); ++i) {
        const auto target = target_of(c, targets[i], logits.back());
        statistics[2 * i] = log_sum_exp(logits.row(i));
        if (target && *target >= 0 && *target < logits.back())
            statistics[2 * i + 1] = logits.row(i)[static_cast<std::size_t>(*target)];
    }
}

void cross_entropy_join(const Call& c) {
    const Tensor &statistics = c.in[0], &targets = c.in[1];
    const std::int64_t parts = statistics.shape[0], rows = targets.elements();
    std::vector<double> sums(static_cast<std::size_t>(parts));
    for (std::int64_t i = 0; i < rows; ++i) {
        double logit = 0;
        for (std::int64_t p = 0; p < parts; ++p) {
            sums[static_cast<std::size_t>(p)] = statistics[2 * (p * rows + i)];
            logit += statistics[2 * (p * rows + i) + 1];
        }
        c.out[1][i] = log_sum_exp(sums);
        if (static_cast<std::int64_t>(targets[i]) != c.attributes.integer("ignore_index", -100))
            c.out[0][0] += c.out[1][i] - logit;
    }
}

// Rounds to the element type of x, in which logits and their gradients are kept.
void round_to(const Tensor& x, DType dtype) {
    for (std::int64_t i = 0; i < x.elements(); ++i) x[i] = rounded(x[i], dtype);
}

// The whole head at once: how many rows at a time is the kernels' affair.
void linear_cross_entropy_gradient(const Call& c) {
    const Tensor &dloss = c.in[0], &x = c.in[1], &weight = c.in[2], &targets = c.in[3];
    const std::int64_t rows = targets.elements(), vocabulary = weight.shape[0];
    std::vector<double> memory(static_cast<std::size_t>(2 * rows * vocabulary + rows));
    const Tensor logits{x.dtype, {rows, vocabulary}, memory.data()};
    const Tensor dlogits{x.dtype, {rows, vocabulary}, logits.data + rows * vocabulary};
    const Tensor lse{targets.dtype, targets.shape, dlogits.data + rows * vocabulary};
    auto formula = [](const std::vector<Formula>& all, std::string_view op) {
        return std::ranges::find(all, op, &Formula::op)->compute;
    };
    const std::vector<Formula> matrix = matrix_formulas();
    std::vector<Tensor> operands = {x, weight};
    if (c.in.size() == 5) operands.push_back(c.in[4]);
    formula(matrix, "linear")(on(c, operands, std::vector{logits}));
    round_to(logits, x.dtype);
    cross_entropy(on(c, std::vector{logits, targets}, std::vector{c.out[0], lse}));
    cross_entropy_gradient(on(c, std::vector{dloss, logits, targets, lse}, std::vector{dlogits}));
    round_to(dlogits, x.dtype);
    formula(matrix, "linear_input_gradient")(on(c, std::vector{dlogits, weight}, c.out.subspan(1, 1)));
    formula(matrix, "linear_weight_gradient")(on(c, std::vector{dlogits, x}, c.out.subspan(2, 1)));
    if (c.in.size() == 5) formula(matrix, "bias_gradient")(on(c, std::vector{dlogits}, c.out.subspan(3)));
}

} // namespace

std::vector<Formula> head_formulas() {
    return {{"linear_cross_entropy_gradient", linear_cross_entropy_gradient, false, 2}};
}

std::vector<Formula> loss_formulas() {
    return {{"cross_entropy", cross_entropy},
            {"cross_entropy_gradient", cross_entropy_gradient},
            {"cross_entropy_part", cross_entropy_part},
            {"cross_entropy_join", cross_entropy_join}};
}

} // namespace tutti::backend::reference

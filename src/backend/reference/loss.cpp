// Cross-entropy over rows of v logits: loss = sum over the rows that count of lse - logit[target].
#include "backend/reference/dense.h"
#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace tutti::reference {
namespace {

// The row's target, or -1 where it is ignored.
std::int64_t target_of(const Call& c, double target, std::int64_t size) {
    const auto id = static_cast<std::int64_t>(target);
    if (id == c.attributes.integer("ignore_index", -100)) return -1;
    TUTTI_CHECK(id >= 0 && id < size, "target {} of {} classes", id, size);
    return id;
}

void cross_entropy(const Call& c) {
    const Tensor &logits = c.in[0], &targets = c.in[1], &lse = c.out[1];
    for (std::int64_t i = 0; i < logits.rows(); ++i) {
        const double most = *std::ranges::max_element(logits.row(i));
        double sum = 0;
        for (double logit : logits.row(i)) sum += std::exp(logit - most);
        lse[i] = most + std::log(sum);
        const std::int64_t target = target_of(c, targets[i], logits.back());
        if (target >= 0) c.out[0][0] += lse[i] - logits.row(i)[target];
    }
}

// dlogits = dloss (softmax - onehot(target)); ignored rows get none
void cross_entropy_gradient(const Call& c) {
    const Tensor &logits = c.in[1], &targets = c.in[2], &lse = c.in[3];
    for (std::int64_t i = 0; i < logits.rows(); ++i) {
        const std::int64_t target = target_of(c, targets[i], logits.back());
        if (target < 0) continue;
        for (std::int64_t j = 0; j < logits.back(); ++j)
            c.out[0].row(i)[j] = c.in[0][0] * (std::exp(logits.row(i)[j] - lse[i]) - (j == target ? 1 : 0));
    }
}

} // namespace

std::vector<Formula> loss_formulas() {
    return {{"cross_entropy", cross_entropy}, {"cross_entropy_gradient", cross_entropy_gradient}};
}

} // namespace tutti::reference

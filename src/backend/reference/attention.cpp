// Attention by the book, one row of scores at a time, and rotary position embedding.
//
//   s_ij = scale q_i k_j + mask_ij,  p = softmax(s),  d_ij = 1 / (1 - dropout) where kept, else 0
//   o_i = sum_j p_ij d_ij v_j,  lse_i = log sum_j exp(s_ij)
// A row that sees no key at all gives zeros, an lse of -inf, and no gradient.
#include "backend/random_stream.h"
#include "backend/reference/dense.h"

#include <cmath>
#include <limits>

namespace tutti::backend::reference {
namespace {

// The operands of one (sample, head, query) row and what the kernels ask about it.
struct Attention {
    const Call& call;
    const Tensor &q, &k, &v;
    const Tensor* mask;

    std::int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = k.shape[1], groups = k.shape[2];
    std::int64_t d = q.shape[3], e = v.shape[3];
    double scale = call.attributes.real("scale"), dropout = call.attributes.real("dropout", 0);
    bool causal = call.attributes.flag("causal");
    PhiloxKey key = key_of(call.scalars);

    double* query(std::int64_t b, std::int64_t i, std::int64_t h) const {
        return q.data + ((b * queries + i) * heads + h) * d;
    }
    // Head h is served by key head h / (heads / groups).
    std::int64_t key_row(std::int64_t b, std::int64_t j, std::int64_t h) const {
        return (b * keys + j) * groups + h / (heads / groups);
    }

    double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        if (causal && j > i + keys - queries) return -std::numeric_limits<double>::infinity();
        const double* key_vector = k.data + key_row(b, j, h) * d;
        double dot = 0;
        for (std::int64_t l = 0; l < d; ++l) dot += query(b, i, h)[l] * key_vector[l];
        return dot * scale + (mask ? (*mask)[offset_of(mask->shape, {b, h, i, j})] : 0);
    }

    // What dropout multiplies probability (i, j) with.
    double kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        if (dropout == 0) return 1;
        const std::int64_t sample =
            call.scalars.first_sample + call.samples_before + call.attributes.integer("first_sample", 0) + b;
        const std::int64_t head = call.attributes.integer("first_head", 0) + h;
        const std::int64_t element = (head * queries + i) * keys + j;
        return keeps(key, stream_of(call.request.source, sample), element, dropout) ? 1 / (1 - dropout) : 0;
    }

    template <class Visit>
    void for_each_row(Visit visit) const {
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t i = 0; i < queries; ++i) visit(b, h, i);
    }
};

void attention(const Call& c) {
    const Attention a{c, c.in[0], c.in[1], c.in[2], c.in.size() == 4 ? &c.in[3] : nullptr};
    const Tensor &out = c.out[0], &lse = c.out[1];
    a.for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < a.keys; ++j) {
            const double score = a.score(b, h, i, j);
            if (score > most || std::isnan(score)) most = score;
        }
        double& row_lse = lse[(b * a.heads + h) * a.queries + i];
        row_lse = most;
        if (std::isinf(most)) return;
        double sum = 0;
        for (std::int64_t j = 0; j < a.keys; ++j) sum += std::exp(a.score(b, h, i, j) - most);
        row_lse = most + std::log(sum);
        double* row = out.data + ((b * a.queries + i) * a.heads + h) * a.e;
        for (std::int64_t j = 0; j < a.keys; ++j) {
            const double weight = std::exp(a.score(b, h, i, j) - most) / sum * a.kept(b, h, i, j);
            for (std::int64_t l = 0; l < a.e; ++l) row[l] += weight * a.v.row(a.key_row(b, j, h))[l];
        }
    });
}

// ds_ij = p_ij (d_ij (do_i v_j) - do_i o_i);  dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i;
// dv_j = sum_i p_ij d_ij do_i
void attention_gradient(const Call& c) {
    const Attention a{c, c.in[1], c.in[2], c.in[3], c.in.size() == 7 ? &c.in[6] : nullptr};
    const Tensor &dout = c.in[0], &out = c.in[4], &lse = c.in[5];
    const Tensor &dq = c.out[0], &dk = c.out[1], &dv = c.out[2];
    a.for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
        const double row_lse = lse[(b * a.heads + h) * a.queries + i];
        if (std::isinf(row_lse)) return;
        const std::int64_t at = (b * a.queries + i) * a.heads + h;
        double delta = 0;
        for (std::int64_t l = 0; l < a.e; ++l) delta += dout.row(at)[l] * out.row(at)[l];
        for (std::int64_t j = 0; j < a.keys; ++j) {
            const std::int64_t key = a.key_row(b, j, h);
            const double p = std::exp(a.score(b, h, i, j) - row_lse), kept = a.kept(b, h, i, j);
            double dp = 0;
            for (std::int64_t l = 0; l < a.e; ++l) {
                dp += kept * dout.row(at)[l] * a.v.row(key)[l];
                dv.row(key)[l] += p * kept * dout.row(at)[l];
            }
            const double ds = a.scale * p * (dp - delta);
            for (std::int64_t l = 0; l < a.d; ++l) {
                dq.row(at)[l] += ds * a.k.row(key)[l];
                dk.row(key)[l] += ds * a.q.row(at)[l];
            }
        }
    });
}

// The pair (x_i, x_{i+p}) turns by the angle of its position: (x cos - y sin, y cos + x sin); inverse turns it back.
void rotary(const Call& c) {
    const Tensor &x = c.in[0], &cosines = c.in[1], &sines = c.in[2], &y = c.out[0];
    const std::int64_t positions = x.shape[1], heads = x.shape[2], pairs = cosines.back();
    const double direction = c.attributes.flag("inverse") ? -1 : 1;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
        const std::int64_t t = r / heads % positions;
        std::ranges::copy(x.row(r), y.row(r).begin());
        for (std::int64_t i = 0; i < pairs; ++i) {
            const double first = x.row(r)[i], second = x.row(r)[i + pairs];
            const double cosine = cosines.row(t)[i], sine = direction * sines.row(t)[i];
            y.row(r)[i] = first * cosine - second * sine;
            y.row(r)[i + pairs] = second * cosine + first * sine;
        }
    }
}

} // namespace

std::vector<Formula> attention_formulas() {
    return {{"attention", attention}, {"attention_gradient", attention_gradient}, {"rotary", rotary}};
}

} // namespace tutti::backend::reference

// Attention by the book, one row of scores at a time, and rotary position embedding.
//
//   x_ij = scale q_i k_j, with a soft cap c: c tanh(x_ij / c);  s_ij = x_ij + mask_ij + bias_ij, -inf where i does not
//   see j;  p_ij = e^s_ij / sum, with a sink: the sum has e^sink, too;  d_ij = 1 / (1 - dropout) where kept, else 0
//   o_i = sum_j p_ij d_ij v_j,  lse_i = log of the sum
// A row that sees no key at all gives zeros, an lse of -inf (or the sink), and no gradient.
#include "backend/attention.h"
#include "backend/random_stream.h"
#include "backend/reference/dense.h"

#include <cmath>
#include <limits>

namespace tutti::backend::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The operands of one (sample, head, query) row and what the kernels ask about it.
struct Attention {
    const Call& call;
    const Tensor &q, &k, &v;
    AttentionInputs given;

    std::int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = k.shape[1], groups = k.shape[2];
    std::int64_t d = q.shape[3], e = v.shape[3];
    double scale = call.attributes.real("scale"), dropout = call.attributes.real("dropout", 0);
    double soft_cap = call.attributes.real("soft_cap", 0);
    AttentionPositions positions{call.attributes, queries, keys};
    PhiloxKey key = key_of(call.scalars);

    // `first`: which input the queries are; `required`: inputs in front of the optional ones.
    Attention(const Call& c, std::size_t first, std::size_t required)
        : call(c), q(c.in[first]), k(c.in[first + 1]), v(c.in[first + 2]), given(c.attributes, required, c.in.size()) {}

    const Tensor* input(std::optional<std::size_t> place) const { return place ? &call.in[*place] : nullptr; }

    double* query(std::int64_t b, std::int64_t i, std::int64_t h) const {
        return q.data + ((b * queries + i) * heads + h) * d;
    }
    // Head h is served by key head h / (heads / groups).
    std::int64_t key_row(std::int64_t b, std::int64_t j, std::int64_t h) const {
        return (b * keys + j) * groups + h / (heads / groups);
    }

    bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
        const Range seen = positions.seen_by(i);
        if (j < seen.begin || j >= seen.end) return false;
        if (!given.documents) return true;
        return call.in[*given.documents][b * queries + i] == call.in[*given.documents + 1][b * keys + j];
    }

    // What tanh leaves of the scaled product of a query and a key.
    double capped(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        const double* key_vector = k.data + key_row(b, j, h) * d;
        double dot = 0;
        for (std::int64_t l = 0; l < d; ++l) dot += query(b, i, h)[l] * key_vector[l];
        return soft_cap > 0 ? soft_cap * std::tanh(dot * scale / soft_cap) : dot * scale;
    }
    // The derivative of the capped score by the score.
    double slope(double score) const { return soft_cap > 0 ? 1 - score * score / (soft_cap * soft_cap) : 1; }

    double added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        double sum = 0;
        for (const Tensor* one : {input(given.mask), input(given.bias)})
            if (one) sum += (*one)[offset_of(one->shape, {b, h, i, j})];
        return sum;
    }

    double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        return sees(b, i, j) ? capped(b, h, i, j) + added(b, h, i, j) : -infinity;
    }

    double sink(std::int64_t h) const { return given.sinks ? call.in[*given.sinks][h] : -infinity; }

    // What dropout multiplies probability (i, j) with.
    double kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
        if (dropout == 0) return 1;
        const std::int64_t sample =
            call.scalars.first_sample + call.samples_before + call.attributes.integer("first_sample", 0) + b;
        const std::int64_t head = call.attributes.integer("first_head", 0) + h;
        const std::int64_t element =
            (head * positions.whole_queries + positions.row(i)) * positions.whole_keys + positions.first_key + j;
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
    const Attention a(c, 0, 3);
    const Tensor &out = c.out[0], &lse = c.out[1];
    a.for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
        double most = a.sink(h);
        for (std::int64_t j = 0; j < a.keys; ++j) {
            const double score = a.score(b, h, i, j);
            if (score > most || std::isnan(score)) most = score;
        }
        double& row_lse = lse[(b * a.heads + h) * a.queries + i];
        row_lse = most;
        if (std::isinf(most)) return;
        double sum = std::exp(a.sink(h) - most);
        for (std::int64_t j = 0; j < a.keys; ++j) sum += std::exp(a.score(b, h, i, j) - most);
        row_lse = most + std::log(sum);
        double* row = out.data + ((b * a.queries + i) * a.heads + h) * a.e;
        for (std::int64_t j = 0; j < a.keys; ++j) {
            const double weight = std::exp(a.score(b, h, i, j) - most) / sum * a.kept(b, h, i, j);
            for (std::int64_t l = 0; l < a.e; ++l) row[l] += weight * a.v.row(a.key_row(b, j, h))[l];
        }
    });
}

// ds_ij = p_ij (d_ij (do_i v_j) - do_i o_i), which is dbias_ij;  dx_ij = scale ds_ij slope_ij;  dq_i = sum_j dx_ij k_j;
// dk_j = sum_i dx_ij q_i;  dv_j = sum_i p_ij d_ij do_i;  dsink = - sum_i e^(sink - lse_i) do_i o_i
void attention_gradient(const Call& c) {
    const Attention a(c, 1, 6);
    const Tensor &dout = c.in[0], &out = c.in[4], &lse = c.in[5];
    const Tensor &dq = c.out[0], &dk = c.out[1], &dv = c.out[2];
    std::size_t next = 3;
    const Tensor* dbias = wants_gradient(c.attributes, "bias") ? &c.out[next++] : nullptr;
    const Tensor* dsinks = wants_gradient(c.attributes, "sinks") ? &c.out[next] : nullptr;
    a.for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
        const double row_lse = lse[(b * a.heads + h) * a.queries + i];
        if (std::isinf(row_lse)) return;
        const std::int64_t at = (b * a.queries + i) * a.heads + h;
        double delta = 0;
        for (std::int64_t l = 0; l < a.e; ++l) delta += dout.row(at)[l] * out.row(at)[l];
        if (dsinks) (*dsinks)[h] -= std::exp(a.sink(h) - row_lse) * delta;
        for (std::int64_t j = 0; j < a.keys; ++j) {
            if (!a.sees(b, i, j)) continue;
            const std::int64_t key = a.key_row(b, j, h);
            const double capped = a.capped(b, h, i, j), kept = a.kept(b, h, i, j);
            const double p = std::exp(capped + a.added(b, h, i, j) - row_lse);
            double dp = 0;
            for (std::int64_t l = 0; l < a.e; ++l) {
                dp += kept * dout.row(at)[l] * a.v.row(key)[l];
                dv.row(key)[l] += p * kept * dout.row(at)[l];
            }
            const double ds = p * (dp - delta), dx = a.scale * ds * a.slope(capped);
            if (dbias) (*dbias)[offset_of(dbias->shape, {b, h, i, j})] += ds;
            for (std::int64_t l = 0; l < a.d; ++l) {
                dq.row(at)[l] += dx * a.k.row(key)[l];
                dk.row(key)[l] += dx * a.q.row(at)[l];
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
    auto check = [](const KernelRequest& request) { expect_attributes("reference", request, attention_attributes()); };
    return {{.op = "attention", .compute = attention, .check = check},
            {.op = "attention_gradient", .compute = attention_gradient, .check = check},
            {"rotary", rotary}};
}

} // namespace tutti::backend::reference

// Fused attention, never materialising the matrix of scores, and rotary position embedding.
#include "ops/families.h"

namespace tutti::ops {
namespace {

// attention(q [b,t,h,d], k [b,s,g,d], v [b,s,g,e] [, mask]) {causal, scale, dropout} -> out [b,t,h,e], lse [b,h,t]
//   h = g r: each of the g key heads serves r query heads. The additive mask broadcasts to [b,h,t,s]. Causal: position
//   i sees keys up to i + s - t. lse, the log of each row's sum of exponentials, is all the backward needs of the
//   scores.
void check_attention(std::string_view op, const TensorType& q, const TensorType& k, const TensorType& v, Types in) {
    const Shape &qs = q.shape, &ks = k.shape, &vs = v.shape;
    expect(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && is_floating(q.dtype) && q.dtype == k.dtype &&
               q.dtype == v.dtype,
           op, in, "takes q [b,t,h,d], k [b,s,g,d], v [b,s,g,e] of one floating type");
    expect(qs[0] == ks[0] && qs[0] == vs[0] && ks[1] == vs[1] && ks[2] == vs[2] && qs[3] == ks[3] && qs[2] % ks[2] == 0,
           op, in, "the batches, lengths, head sizes or head counts do not fit");
}

void check_mask(std::string_view op, const Shape& q, const Shape& k, const TensorType& mask, Types in) {
    const Shape whole = {q[0], q[2], q[1], k[1]};
    bool fits = mask.shape.rank() == 4 && is_floating(mask.dtype);
    for (int d = 0; fits && d < 4; ++d) fits = mask.shape[d] == 1 || mask.shape[d] == whole[d];
    expect(fits, op, in, "the mask does not broadcast to [b,h,t,s]");
}

std::string mask_loops(const Shape& mask) {
    static constexpr const char* names[4] = {"b", "(g r)", "t", "s!"};
    std::string text;
    for (int d = 0; d < 4; ++d) text += std::string(" ") + (mask[d] == 1 ? "1" : names[d]);
    return text;
}

// Queries may be split only where no query's place in the sequence matters.
std::string query_loop(const Attributes& a) { return a.flag("causal") || a.real("dropout", 0) > 0 ? "t!" : "t"; }

double attention_flops(const Shape& q, const Shape& v, std::int64_t keys, bool causal) {
    const double pairs = static_cast<double>(q[0] * q[2] * q[1] * keys) * (causal ? 0.5 : 1);
    return 2 * pairs * static_cast<double>(q[3] + v[3]);
}

Attributes part_of_attention(Types in, const Attributes& a, std::string_view loop, std::int64_t begin, std::int64_t) {
    Attributes part = a;
    if (a.real("dropout", 0) == 0) return part;
    // Dropout is drawn by global sample and head.
    if (loop == "b") part.set("first_sample", a.integer("first_sample", 0) + begin);
    const std::int64_t group = in[0].shape[2] / in[1].shape[2];
    if (loop == "g") part.set("first_head", a.integer("first_head", 0) + begin * group);
    return part;
}

Operator attention() {
    return {
        .name = "attention",
        .loops =
            [](Types in, const Attributes& a) {
                const std::string t = query_loop(a);
                std::string text = fmt::format("b {} (g r!) d!, b s! g d!, b s! g e!", t);
                if (in.size() == 4) text += "," + mask_loops(in[3].shape);
                return text + fmt::format(" -> b {} (g r!) e!, b (g r!) {}", t, t);
            },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("attention", in, 3, 4);
            check_attention("attention", in[0], in[1], in[2], in);
            if (in.size() == 4) check_mask("attention", in[0].shape, in[1].shape, in[3], in);
            const Shape& q = in[0].shape;
            return {{in[0].dtype, with_last(q, in[2].shape[3])}, {wide(in[0].dtype), {q[0], q[2], q[1]}}};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.expect_only_first_output();
                if (g.wants(3)) fail("[attention] the mask may not depend on parameters");
                std::vector<ValueId> inputs = {g.gradient(), g.input(0),  g.input(1),
                                               g.input(2),   g.output(0), g.output(1)};
                if (g.input_count() == 4) inputs.push_back(g.input(3));
                const NodeId all = g.emit_node("attention_gradient", inputs, g.attributes());
                for (std::size_t i = 0; i < 3; ++i) g.set(i, g.output_of(all, i));
            },
        .cost =
            [](Types in, Types out, const Attributes& a) {
                return Cost{{attention_flops(in[0].shape, in[2].shape, in[1].shape[1], a.flag("causal"))},
                            traffic(in, out)};
            },
        .part = part_of_attention,
        .accepts = Accepts::rows,
        .drops = "dropout",
        .heads = "g",
        .kernel_class = KernelClass::attention,
    };
}

// attention_gradient(dout, q, k, v, out, lse [, mask]) {as attention} -> dq, dk, dv
Operator attention_gradient() {
    return {
        .name = "attention_gradient",
        .loops =
            [](Types in, const Attributes&) {
                std::string text = "b t! (g r!) e!, b t! (g r!) d!, b s! g d!, b s! g e!, b t! (g r!) e!, b (g r!) t!";
                if (in.size() == 7) text += "," + mask_loops(in[6].shape);
                return text + " -> b t! (g r!) d!, b s! g d!, b s! g e!";
            },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("attention_gradient", in, 6, 7);
            check_attention("attention_gradient", in[1], in[2], in[3], in);
            if (in.size() == 7) check_mask("attention_gradient", in[1].shape, in[2].shape, in[6], in);
            return {in[1], in[2], in[3]};
        },
        .cost =
            [](Types in, Types out, const Attributes& a) {
                return Cost{{2.5 * attention_flops(in[1].shape, in[3].shape, in[2].shape[1], a.flag("causal"))},
                            traffic(in, out)};
            },
        .part = [](Types in, const Attributes& a, std::string_view loop, std::int64_t begin,
                   std::int64_t size) { return part_of_attention(in.subspan(1), a, loop, begin, size); },
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .drops = "dropout",
        .gradient_of = "attention",
        .kernel_class = KernelClass::attention_gradient,
    };
}

// rotary(x [b,t,h,d], cos [t,p], sin [t,p]) {inverse} -> x with its first 2p elements rotated: element i pairs with i +
// p.
Operator rotary() {
    return {
        .name = "rotary",
        .loops = loops("b t h d!, t p!, t p! -> b t h d!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("rotary", in, 3, 3);
            expect(in[0].shape.rank() == 4 && in[1] == in[2] && in[1].shape.rank() == 2 &&
                       in[1].shape[0] == in[0].shape[1] && 2 * in[1].shape[1] <= in[0].shape[3] &&
                       in[1].dtype == wide(in[0].dtype),
                   "rotary", in, "takes x [b,t,h,d] and tables [t,p] with 2p <= d");
            return {in[0]};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.set(0, g.emit("rotary", {g.gradient(), g.input(1), g.input(2)},
                                {{"inverse", !g.attributes().flag("inverse")}}));
            },
        .cost = streaming(6),
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .overwrites = 0,
        .linear = Linear::first,
    };
}

} // namespace

std::vector<Operator> attention_operators() { return {attention(), attention_gradient(), rotary()}; }

} // namespace tutti::ops

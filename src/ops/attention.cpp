// Fused attention, never materialising the matrix of scores, and rotary position embedding.
#include "graph/attention.h"
#include "base/counted.h"
#include "ops/families.h"

#include <cmath>

namespace tutti::ops {
namespace {

constexpr std::int64_t farthest_position = std::int64_t{1} << 48;

// attention(q [b,t,h,d], k [b,s,g,d], v [b,s,g,e], optional inputs) {scale, causal, dropout, window, soft_cap, takes}
//     -> out [b,t,h,e], lse [b,h,t]
//   h = g r: each of the g key heads serves r query heads. lse, the log of each row's sum of exponentials, is all the
//   backward needs of the scores, and all it takes to put together attention to some of the keys and to the others:
//   out = sum exp(lse_i - lse) out_i, lse = log sum exp(lse_i).
//
//   A query sees keys up to its own position (causal), of these the last `window` (both ways where it is not causal),
//   and only those of its own document. Keys that nothing of it sees are no work.
//     soft_cap c   scores become c tanh(score / c), before what is added to them
//     mask         added to the scores, broadcasts to [b,h,t,s]; no gradient
//     bias         the same, with a gradient
//     sinks [h]    one more score per head in the sum of exponentials, without a value; with a gradient
//     documents    int32 [b,t] and [b,s]: the position at which the document of each query and of each key begins
//   first_query, first_key, whole_queries, whole_keys: the place of these queries and keys in a longer sequence
//   (graph/attention.h). Dropout is drawn by global sample, head and positions, and does not reach lse.
struct Operands {
    const TensorType &q, &k, &v;
    AttentionInputs given; // counted as in `rest`
    Types rest;            // of the inputs, from the first optional one on

    Operands(Types in, const Attributes& a, std::size_t first, std::size_t required)
        : q(in[first]), k(in[first + 1]), v(in[first + 2]), given(a, 0, in.size() - required),
          rest(in.subspan(required)) {}

    const TensorType& operator[](std::size_t i) const { return rest[i]; }
    AttentionPositions positions(const Attributes& a) const { return {a, q.shape[1], k.shape[1]}; }
    double flops(const Attributes& a) const {
        return 2 * static_cast<double>(q.shape[0] * q.shape[2]) * positions(a).pairs() *
               static_cast<double>(q.shape[3] + v.shape[3]);
    }
};

// Forward and backward: where their operands begin and how many they have to have.
Operands forward_operands(Types in, const Attributes& a) { return {in, a, 0, 3}; }
Operands backward_operands(Types in, const Attributes& a) { return {in, a, 1, 6}; }

void check_heads(std::string_view op, const Operands& o, Types in) {
    const Shape &qs = o.q.shape, &ks = o.k.shape, &vs = o.v.shape;
    expect(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && is_floating(o.q.dtype) && o.q.dtype == o.k.dtype &&
               o.q.dtype == o.v.dtype,
           op, in, "takes q [b,t,h,d], k [b,s,g,d], v [b,s,g,e] of one floating type");
    expect(qs[0] == ks[0] && qs[0] == vs[0] && ks[1] == vs[1] && ks[2] == vs[2] && qs[3] == ks[3] && qs[2] % ks[2] == 0,
           op, in, "the batches, lengths, head sizes or head counts do not fit");
}

void check_added(std::string_view op, std::string_view name, const Operands& o, const TensorType& added, Types in) {
    const Shape whole = {o.q.shape[0], o.q.shape[2], o.q.shape[1], o.k.shape[1]};
    bool fits = added.shape.rank() == 4 && is_floating(added.dtype);
    for (int d = 0; fits && d < 4; ++d) fits = added.shape[d] == 1 || added.shape[d] == whole[d];
    expect(fits, op, in, fmt::format("the {} does not broadcast to [b,h,t,s]", name));
}

void check_optional(std::string_view op, const Operands& o, Types in) {
    expect(o.rest.size() == o.given.count, op, in,
           fmt::format("{} given, but \"takes\" names {}",
                       counted(static_cast<std::int64_t>(o.rest.size()), "optional input"), o.given.count));
    if (o.given.mask) check_added(op, "mask", o, o[*o.given.mask], in);
    if (o.given.bias) check_added(op, "bias", o, o[*o.given.bias], in);
    if (o.given.sinks) {
        const TensorType& sinks = o[*o.given.sinks];
        expect(sinks.shape == Shape{o.q.shape[2]} && is_floating(sinks.dtype), op, in,
               "the sinks are one floating number per query head, [h]");
    }
    if (!o.given.documents) return;
    const TensorType &queries = o[*o.given.documents], &keys = o[*o.given.documents + 1];
    expect(queries == TensorType{DType::int32, {o.q.shape[0], o.q.shape[1]}} &&
               keys == TensorType{DType::int32, {o.k.shape[0], o.k.shape[1]}},
           op, in, "the documents are int32 [b,t] of the queries and int32 [b,s] of the keys");
}

void check_attributes(std::string_view op, const Operands& o, const Attributes& a, Types in) {
    if (a.has("window"))
        expect(a.integer("window") > 0, op, in,
               fmt::format("a window of {} sees no key; it is at least 1", counted(a.integer("window"), "key")));
    if (a.has("soft_cap"))
        expect(a.real("soft_cap") > 0 && std::isfinite(a.real("soft_cap")), op, in,
               fmt::format("the soft cap is {}; it is above 0", a.real("soft_cap")));
    const double dropout = a.real("dropout", 0);
    expect(dropout >= 0 && dropout < 1, op, in, fmt::format("dropout is {}; it is from 0 up to, but not, 1", dropout));
    const AttentionPositions p = o.positions(a);
    expect(std::abs(p.first_query) <= farthest_position && std::abs(p.first_key) <= farthest_position &&
               p.whole_queries > 0 && p.whole_queries <= farthest_position && p.whole_keys > 0 &&
               p.whole_keys <= farthest_position,
           op, in, "its positions are beyond any sequence");
    if (dropout > 0)
        expect(
            p.row(0) >= 0 && p.row(p.queries - 1) < p.whole_queries && p.first_key >= 0 &&
                p.first_key + p.keys <= p.whole_keys,
            op, in,
            fmt::format("dropout needs to know the whole sequence: queries from {} and keys from {} on are not within "
                        "whole_queries {} and whole_keys {}",
                        p.first_query, p.first_key, p.whole_queries, p.whole_keys));
}

void check_attention(std::string_view op, const Operands& o, const Attributes& a, Types in) {
    check_heads(op, o, in);
    check_optional(op, o, in);
    check_attributes(op, o, a, in);
}

// A dimension of size 1 is broadcast: it belongs to no loop.
std::string added_loops(const Shape& added, std::string_view keys) {
    const std::string_view names[4] = {"b", "(g r!)", "t", keys};
    std::string text;
    for (int d = 0; d < 4; ++d) text += fmt::format(" {}", added[d] == 1 ? "1" : names[d]);
    return text;
}

// Of the optional inputs, each with a comma in front; `keys`: the loop of the keys, s or s!.
std::string optional_loops(const Operands& o, std::string_view keys) {
    std::string text;
    if (o.given.mask) text += "," + added_loops(o[*o.given.mask].shape, keys);
    if (o.given.bias) text += "," + added_loops(o[*o.given.bias].shape, keys);
    if (o.given.sinks) text += ", (g r!)";
    if (o.given.documents) text += fmt::format(", b t, b {}", keys);
    return text;
}

// Parts know their place where something depends on it.
Attributes part_of_attention(const Operands& o, const Attributes& a, std::string_view loop, std::int64_t begin,
                             std::int64_t size) {
    Attributes part = a;
    const bool drops = a.real("dropout", 0) > 0;
    if (drops || a.flag("causal") || a.has("window")) {
        if (loop == "t") o.positions(a).part_of_queries(begin, size).place(part);
        if (loop == "s") o.positions(a).part_of_keys(begin, size).place(part);
    }
    const std::int64_t group = o.q.shape[2] / o.k.shape[2];
    if (drops && loop == "b") part.set("first_sample", a.integer("first_sample", 0) + begin);
    if (drops && loop == "g") part.set("first_head", a.integer("first_head", 0) + begin * group);
    return part;
}

void differentiate_attention(GradientBuilder& g) {
    g.expect_only_first_output();
    const AttentionInputs given(g.attributes(), 3, g.input_count());
    if (given.mask && g.wants(*given.mask)) fail("[attention] the mask may not depend on parameters; a bias may");
    std::vector<ValueId> inputs = {g.gradient(), g.input(0), g.input(1), g.input(2), g.output(0), g.output(1)};
    for (std::size_t i = 3; i < g.input_count(); ++i) inputs.push_back(g.input(i));
    Attributes attributes = g.attributes();
    std::vector<std::size_t> wanted = {0, 1, 2};
    std::string names;
    auto want = [&](std::optional<std::size_t> input, std::string_view name) {
        if (!input || !g.wants(*input)) return;
        wanted.push_back(*input);
        names += fmt::format("{}{}", names.empty() ? "" : " ", name);
    };
    want(given.bias, "bias");
    want(given.sinks, "sinks");
    if (!names.empty()) attributes.set("wants", names);
    const NodeId all = g.emit_node("attention_gradient", inputs, attributes);
    for (std::size_t i = 0; i < wanted.size(); ++i) g.set(wanted[i], g.output_of(all, i));
}

// Documents are data, so flops are those of one document; what causality and window rule out is not counted.
Operator attention() {
    return {
        .name = "attention",
        .loops =
            [](Types in, const Attributes& a) {
                return "b t (g r!) d!, b s! g d!, b s! g e!" + optional_loops(forward_operands(in, a), "s!") +
                       " -> b t (g r!) e!, b (g r!) t";
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("attention", in, 3, 8);
            const Operands o = forward_operands(in, a);
            check_attention("attention", o, a, in);
            const Shape& q = o.q.shape;
            return {{o.q.dtype, with_last(q, o.v.shape[3])}, {wide(o.q.dtype), {q[0], q[2], q[1]}}};
        },
        .gradient = differentiate_attention,
        .cost =
            [](Types in, Types out, const Attributes& a) {
                return Cost{{forward_operands(in, a).flops(a)}, traffic(in, out)};
            },
        .part = [](Types in, const Attributes& a, std::string_view loop, std::int64_t begin,
                   std::int64_t size) { return part_of_attention(forward_operands(in, a), a, loop, begin, size); },
        .accepts = Accepts::rows,
        .drops = "dropout",
        .heads = "g",
        .kernel_class = KernelClass::attention,
    };
}

// attention_gradient(dout, q, k, v, out, lse, optional inputs) {as attention, wants} -> dq, dk, dv [, dbias] [, dsinks]
//   The last two where "wants" names them. With lse each pair of a query and a key is by itself, so queries may be
//   split, and keys too where there is no gradient of the sinks, which are not among the keys.
Operator attention_gradient() {
    return {
        .name = "attention_gradient",
        .loops =
            [](Types in, const Attributes& a) {
                const Operands o = backward_operands(in, a);
                const bool sinks = o.given.sinks && wants_gradient(a, "sinks");
                const std::string s = sinks ? "s!" : "s";
                std::string text = fmt::format("b t (g r!) e!, b t (g r!) d!, b {0} g d!, b {0} g e!, b t (g r!) e!, "
                                               "b (g r!) t{1} -> b t (g r!) d!, b {0} g d!, b {0} g e!",
                                               s, optional_loops(o, s));
                if (o.given.bias && wants_gradient(a, "bias")) text += "," + added_loops(o[*o.given.bias].shape, s);
                return text + (sinks ? ", (g r!)" : "");
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("attention_gradient", in, 6, 11);
            const Operands o = backward_operands(in, a);
            check_attention("attention_gradient", o, a, in);
            std::vector<TensorType> out = {in[1], in[2], in[3]};
            auto add = [&](std::optional<std::size_t> input, std::string_view name) {
                if (!wants_gradient(a, name)) return;
                expect(input.has_value(), "attention_gradient", in,
                       fmt::format("there are no {} to differentiate", name));
                out.push_back({wide(o[*input].dtype), o[*input].shape});
            };
            add(o.given.bias, "bias");
            add(o.given.sinks, "sinks");
            return out;
        },
        .cost =
            [](Types in, Types out, const Attributes& a) {
                return Cost{{2.5 * backward_operands(in, a).flops(a)}, traffic(in, out)};
            },
        .part = [](Types in, const Attributes& a, std::string_view loop, std::int64_t begin,
                   std::int64_t size) { return part_of_attention(backward_operands(in, a), a, loop, begin, size); },
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

// Normalisation over the last dimension. The forward saves row statistics, not the normalised rows.
#include "ops/families.h"

namespace tutti::ops {
namespace {

TensorType statistics(const TensorType& x) { return {wide(x.dtype), without_last(x.shape)}; }

void expect_rows(std::string_view op, Types in, std::size_t least, std::size_t most) {
    expect_inputs(op, in, least, most);
    expect(!in[0].shape.empty() && is_floating(in[0].dtype), op, in, "takes floating rows");
}

void expect_vector(std::string_view op, Types in, std::size_t i) {
    expect(in[i].shape == Shape{in[0].shape.back()} && in[i].dtype == in[0].dtype, op, in,
           "scale and shift are one row of the input's type");
}

// layer_norm(x [, scale, shift]) {eps} -> y, mean, rstd
void layer_norm_gradient(GradientBuilder& g) {
    g.expect_only_first_output();
    const ValueId dy = g.gradient(), x = g.input(0), mean = g.output(1), rstd = g.output(2);
    const bool affine = g.input_count() == 3;
    if (g.wants(0))
        g.set(0, affine ? g.emit("layer_norm_input_gradient", {dy, x, mean, rstd, g.input(1)})
                        : g.emit("layer_norm_input_gradient", {dy, x, mean, rstd}));
    if (!g.wants(1) && !g.wants(2)) return;
    const NodeId both = g.emit_node("layer_norm_weight_gradient", {dy, x, mean, rstd});
    g.set(1, g.output_of(both, 0));
    g.set(2, g.output_of(both, 1));
}

Operator layer_norm() {
    return {
        .name = "layer_norm",
        .loops =
            [](Types in, const Attributes&) {
                return in.size() == 3 ? "r* h!, h!, h! -> r* h!, r*, r*" : "r* h! -> r* h!, r*, r*";
            },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("layer_norm", in, 1, 3);
            expect(in.size() != 2, "layer_norm", in, "takes scale and shift together");
            for (std::size_t i = 1; i < in.size(); ++i) expect_vector("layer_norm", in, i);
            return {in[0], statistics(in[0]), statistics(in[0])};
        },
        .gradient = layer_norm_gradient,
        .cost = streaming(8),
        .accepts = Accepts::rows,
        .after_sum = "add_layer_norm",
    };
}

// layer_norm_input_gradient(dy, x, mean, rstd [, scale]) -> dx
Operator layer_norm_input_gradient() {
    return {
        .name = "layer_norm_input_gradient",
        .loops =
            [](Types in, const Attributes&) {
                return in.size() == 5 ? "r* h!, r* h!, r*, r*, h! -> r* h!" : "r* h!, r* h!, r*, r* -> r* h!";
            },
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("layer_norm_input_gradient", in, 4, 5);
            return {in[1]};
        },
        .cost = streaming(12),
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .gradient_of = "layer_norm",
        .norm_gradient = NormGradient{.scale = 4,
                                      .weight_gradient = "layer_norm_weight_gradient",
                                      .both_gradients = "layer_norm_gradient"},
    };
}

// layer_norm_weight_gradient(dy, x, mean, rstd) -> dscale, dshift
Operator layer_norm_weight_gradient() {
    return {
        .name = "layer_norm_weight_gradient",
        .loops = loops("r* h, r* h, r*, r* -> h, h"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("layer_norm_weight_gradient", in, 4, 4);
            const TensorType row{wide(in[0].dtype), {in[0].shape.back()}};
            return {row, row};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{5.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::rows,
        .accumulates_from = 0,
        .gradient_of = "layer_norm",
    };
}

// rms_norm(x, scale) {eps, unit_offset} -> y, rstd. With unit_offset the rows are scaled by 1 + scale (Gemma).
void rms_norm_gradient(GradientBuilder& g) {
    g.expect_only_first_output();
    const ValueId dy = g.gradient(), x = g.input(0), scale = g.input(1), rstd = g.output(1);
    const Attributes offset = {{"unit_offset", g.attributes().flag("unit_offset")}};
    if (g.wants(0)) g.set(0, g.emit("rms_norm_input_gradient", {dy, x, rstd, scale}, offset));
    if (g.wants(1)) g.set(1, g.emit("rms_norm_weight_gradient", {dy, x, rstd}));
}

Operator rms_norm() {
    return {
        .name = "rms_norm",
        .loops = loops("r* h!, h! -> r* h!, r*"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("rms_norm", in, 2, 2);
            expect_vector("rms_norm", in, 1);
            return {in[0], statistics(in[0])};
        },
        .gradient = rms_norm_gradient,
        .cost = streaming(5),
        .accepts = Accepts::rows,
        .after_sum = "add_rms_norm",
    };
}

// rms_norm_input_gradient(dy, x, rstd, scale) {unit_offset} -> dx
Operator rms_norm_input_gradient() {
    return {
        .name = "rms_norm_input_gradient",
        .loops = loops("r* h!, r* h!, r*, h! -> r* h!"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("rms_norm_input_gradient", in, 4, 4);
            return {in[1]};
        },
        .cost = streaming(8),
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .gradient_of = "rms_norm",
        .norm_gradient = NormGradient{.scale = 3,
                                      .weight_gradient = "rms_norm_weight_gradient",
                                      .both_gradients = "rms_norm_gradient"},
    };
}

// rms_norm_weight_gradient(dy, x, rstd) -> dscale
Operator rms_norm_weight_gradient() {
    return {
        .name = "rms_norm_weight_gradient",
        .loops = loops("r* h, r* h, r* -> h"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_rows("rms_norm_weight_gradient", in, 3, 3);
            return {{wide(in[0].dtype), {in[0].shape.back()}}};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{3.0 * static_cast<double>(in[0].elements())}, traffic(in, out)};
            },
        .accepts = Accepts::rows,
        .accumulates_from = 0,
        .gradient_of = "rms_norm",
    };
}

// ---- Fused forms, made after differentiation (graph/fuse.h), so they have no gradient themselves.

// The sum is rounded to its type before anything is taken of it: fused or not, the numbers are the same.
std::vector<TensorType> infer_add_norm(std::string_view op, Types in, std::size_t inputs, std::size_t row_statistics) {
    expect_rows(op, in, inputs, inputs);
    expect(in[1] == in[0], op, in, "adds two tensors of one type");
    for (std::size_t i = 2; i < inputs; ++i) expect_vector(op, in, i);
    std::vector<TensorType> out = {in[0], in[0]};
    out.resize(2 + row_statistics, statistics(in[0]));
    return out;
}

// add_layer_norm(x, delta, scale, shift) {eps} -> sum, y, mean, rstd
Operator add_layer_norm() {
    return {
        .name = "add_layer_norm",
        .loops = loops("r* h!, r* h!, h!, h! -> r* h!, r* h!, r*, r*"),
        .infer = [](Types in, const Attributes&) { return infer_add_norm("add_layer_norm", in, 4, 2); },
        .cost = streaming(9),
        .accepts = Accepts::rows,
        .without_sum = "layer_norm",
    };
}

// add_rms_norm(x, delta, scale) {eps, unit_offset} -> sum, y, rstd
Operator add_rms_norm() {
    return {
        .name = "add_rms_norm",
        .loops = loops("r* h!, r* h!, h! -> r* h!, r* h!, r*"),
        .infer = [](Types in, const Attributes&) { return infer_add_norm("add_rms_norm", in, 3, 1); },
        .cost = streaming(6),
        .accepts = Accepts::rows,
        .without_sum = "rms_norm",
    };
}

// dy, x, `row_statistics` of them, scale [, residual] -> dx [+ residual], one row per parameter
std::vector<TensorType> infer_norm_gradient(std::string_view op, Types in, std::size_t row_statistics,
                                            std::size_t parameters) {
    const std::size_t scale = 2 + row_statistics;
    expect_rows(op, in, scale + 1, scale + 2);
    expect(in[1] == in[0] && (in.size() == scale + 1 || in.back() == in[0]), op, in,
           "takes dy, x and residual of one type");
    for (std::size_t i = 2; i < scale; ++i) expect(in[i] == statistics(in[0]), op, in, "takes one statistic per row");
    expect_vector(op, in, scale);
    std::vector<TensorType> out = {in[0]};
    out.resize(1 + parameters, {wide(in[0].dtype), {in[0].shape.back()}});
    return out;
}

// layer_norm_gradient(dy, x, mean, rstd, scale [, residual]) -> dx, dscale, dshift
Operator layer_norm_gradients() {
    return {
        .name = "layer_norm_gradient",
        .loops =
            [](Types in, const Attributes&) {
                return in.size() == 6 ? "r* h!, r* h!, r*, r*, h!, r* h! -> r* h!, h!, h!"
                                      : "r* h!, r* h!, r*, r*, h! -> r* h!, h!, h!";
            },
        .infer = [](Types in, const Attributes&) { return infer_norm_gradient("layer_norm_gradient", in, 2, 2); },
        .cost = streaming(18),
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .accumulates_from = 1,
        .gradient_of = "layer_norm",
        .stores_last = true,
    };
}

// rms_norm_gradient(dy, x, rstd, scale [, residual]) {unit_offset} -> dx, dscale
Operator rms_norm_gradients() {
    return {
        .name = "rms_norm_gradient",
        .loops =
            [](Types in, const Attributes&) {
                return in.size() == 5 ? "r* h!, r* h!, r*, h!, r* h! -> r* h!, h!"
                                      : "r* h!, r* h!, r*, h! -> r* h!, h!";
            },
        .infer = [](Types in, const Attributes&) { return infer_norm_gradient("rms_norm_gradient", in, 1, 1); },
        .cost = streaming(12),
        .accepts = Accepts::rows,
        .writes = Accepts::rows,
        .accumulates_from = 1,
        .gradient_of = "rms_norm",
        .stores_last = true,
    };
}

} // namespace

std::vector<Operator> norm_operators() {
    return {layer_norm(),         layer_norm_input_gradient(), layer_norm_weight_gradient(), rms_norm(),
            add_layer_norm(),     rms_norm_input_gradient(),   rms_norm_weight_gradient(),   add_rms_norm(),
            rms_norm_gradients(), layer_norm_gradients()};
}

} // namespace tutti::ops

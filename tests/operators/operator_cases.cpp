// The list of cases. Sizes are odd and small: 1, 3, 7, 17, so that every edge of a blocked kernel is met.
#include "operators/operator_cases.h"

namespace tutti::testing {
namespace {

using List = std::vector<std::int64_t>;

Argument small(Shape shape) { return {shape, Element::tested, Fill::small}; }
Argument booleans(Shape shape) { return {shape, Element::boolean, Fill::boolean}; }
Argument ids(Shape shape, std::int64_t below, std::optional<std::int64_t> instead = {}) {
    return {shape, Element::int64, Fill::ids, below, instead};
}
Argument ids32(Shape shape, std::int64_t below) { return {shape, Element::int32, Fill::ids, below}; }

void add_matrix(std::vector<Case>& all) {
    all.push_back({"matmul/plain", {normal({17, 33}), normal({33, 7})}});
    all.push_back({"matmul/batch", {normal({2, 3, 7, 5}), normal({2, 3, 5, 1})}});
    all.push_back({"matmul/a", {normal({3, 9, 7}), normal({3, 9, 5})}, {{"transpose_a", true}}});
    all.push_back({"matmul/b", {normal({3, 7, 9}), normal({3, 5, 9})}, {{"transpose_b", true}}});
    all.push_back(
        {"matmul/both", {normal({3, 9, 7}), normal({3, 5, 9})}, {{"transpose_a", true}, {"transpose_b", true}}});
    all.push_back({"linear/plain", {normal({3, 7, 17}), normal({33, 17})}});
    all.push_back({"linear/bias", {normal({3, 7, 17}), normal({33, 17}), normal({33})}});
    all.push_back({"linear/row", {normal({1, 65}), normal({3, 65}), normal({3})}});
    all.push_back({"linear/vector", {normal({65}), normal({1, 65})}});
    all.push_back({"linear_input_gradient/plain", {normal({3, 7, 33}), normal({33, 17})}});
    all.push_back({"linear_input_gradient/row", {normal({1, 3}), normal({3, 65})}});
    all.push_back({"linear_input_gradient/addend", {normal({3, 7, 33}), normal({33, 17}), normal({3, 7, 17})}});
    all.push_back({"linear_input_gradient/addend_row", {normal({1, 3}), normal({3, 65}), normal({1, 65})}});
    all.push_back({"linear_input_gradient/addend_aligned", {normal({24, 64}), normal({64, 128}), normal({24, 128})}});
    all.push_back({"linear_input_gradient/addend_aliasing", {normal({3, 5}), normal({5, 1024}), normal({3, 1024})}});
    all.push_back({"linear_weight_gradient/plain", {normal({3, 7, 33}), normal({3, 7, 17})}});
    all.push_back({"linear_weight_gradient/row", {normal({1, 3}), normal({1, 65})}});
    // By rows and by columns: the same call of a library, with the operands in the other order.
    all.push_back({"linear_weight_gradient/square", {normal({7, 16}), normal({7, 16})}});
    // Shapes for which a backend may choose another routine: rows 4 KiB apart, and the width of a vocabulary.
    all.push_back({"linear/aliasing", {normal({3, 5}), normal({1024, 5}), normal({1024})}, {}, {}});
    all.push_back({"linear_input_gradient/aliasing", {normal({3, 5}), normal({5, 1024})}});
    all.push_back({"linear_weight_gradient/aliasing", {normal({7, 5}), normal({7, 1024})}});
    all.push_back({"linear/wide", {normal({3, 5}), normal({16401, 5}), normal({16401})}, {}, {}});
    all.push_back({"linear_input_gradient/wide", {normal({3, 16401}), normal({16401, 5})}});
    all.push_back({"linear_weight_gradient/wide", {normal({7, 16401}), normal({7, 5})}});
    all.push_back({"bias_gradient/plain", {normal({3, 7, 33})}});
    all.push_back({"bias_gradient/column", {normal({17, 1})}});
}

void add_norms(std::vector<Case>& all) {
    const Attributes eps = {{"eps", 1e-5}};
    const Attributes gemma = {{"eps", 1e-6}, {"unit_offset", true}};
    all.push_back({"layer_norm/plain", {normal({3, 7, 33})}, eps});
    all.push_back({"layer_norm/affine", {normal({3, 7, 33}), normal({33}), normal({33})}, eps});
    all.push_back({"layer_norm/row", {normal({65}), normal({65}), normal({65})}, eps});
    const Forward plain{"layer_norm", {1}, {{1, 2}, {2, 3}}};
    const std::vector<Argument> rows = {normal({3, 7, 33}), normal({3, 7, 33}), wide_normal({3, 7}),
                                        wide_positive({3, 7})};
    std::vector<Argument> scaled = rows;
    scaled.push_back(normal({33}));
    all.push_back({"layer_norm_input_gradient/plain", rows, eps, {0}, plain});
    all.push_back({"layer_norm_input_gradient/scale", scaled, eps, {0}, plain});
    all.push_back({"layer_norm_weight_gradient/plain", rows, eps, {0}, plain});

    all.push_back({"rms_norm/plain", {normal({3, 7, 33}), normal({33})}, eps});
    all.push_back({"rms_norm/unit_offset", {normal({5, 17}), normal({17})}, gemma});
    const std::vector<Argument> rms = {normal({3, 7, 33}), normal({3, 7, 33}), wide_positive({3, 7})};
    std::vector<Argument> rms_scaled = rms;
    rms_scaled.push_back(normal({33}));
    const Forward rms_forward{"rms_norm", {1, 3}, {{1, 2}}};
    all.push_back({"rms_norm_input_gradient/plain", rms_scaled, eps, {0}, rms_forward});
    all.push_back({"rms_norm_input_gradient/unit_offset", rms_scaled, gemma, {0}, rms_forward});
    all.push_back({"rms_norm_weight_gradient/plain", rms});
}

void add_fused_norms(std::vector<Case>& all) {
    const Attributes eps = {{"eps", 1e-5}};
    const Attributes gemma = {{"eps", 1e-6}, {"unit_offset", true}};
    struct Sizes {
        std::string name;
        Shape rows;
        std::int64_t h;
    };
    const std::vector<Sizes> variants = {
        {"plain", {3, 7}, 33}, {"vector", {}, 65}, {"short", {5}, 3}, {"aligned", {2, 9}, 256}, {"long", {3}, 1031}};
    for (const Sizes& z : variants) {
        Shape shape = z.rows;
        shape.push_back(z.h);
        const Argument x = normal(shape), row = normal({z.h});
        all.push_back(
            {.name = "add_layer_norm/" + z.name, .inputs = {x, x, row, row}, .attributes = eps, .rounds = true});
        all.push_back({.name = "add_rms_norm/" + z.name, .inputs = {x, x, row}, .attributes = eps, .rounds = true});
        for (bool residual : {false, true}) {
            Case layer{"layer_norm_gradient/" + z.name + (residual ? "_residual" : ""),
                       {x, x, wide_normal(z.rows), wide_positive(z.rows), row},
                       eps};
            layer.forward = Forward{"layer_norm", {1}, {{1, 2}, {2, 3}}};
            Case rms{"rms_norm_gradient/" + z.name + (residual ? "_residual" : ""),
                     {x, x, wide_positive(z.rows), row},
                     residual ? gemma : eps};
            rms.forward = Forward{"rms_norm", {1, 3}, {{1, 2}}};
            if (residual) layer.inputs.push_back(x), rms.inputs.push_back(x);
            all.push_back(std::move(layer));
            all.push_back(std::move(rms));
        }
    }
    const Argument odd = normal({5, 17});
    all.push_back(
        {.name = "add_rms_norm/unit_offset", .inputs = {odd, odd, normal({17})}, .attributes = gemma, .rounds = true});
}

void add_gated(std::vector<Case>& all) {
    for (const char* activation : {"silu", "gelu", "gelu_tanh", "relu"})
        for (const Shape& shape : {Shape{3, 7, 17}, Shape{4, 128}}) {
            const std::string name = std::string(activation) + (shape.rank() == 2 ? "_aligned" : "");
            const Attributes attributes = {{"activation", std::string(activation)}};
            const Argument x = normal(shape);
            all.push_back({"gated/" + name, {x, x}, attributes});
            all.push_back({"gated_gradient/" + name, {x, x, x}, attributes});
        }
}

void add_unary(std::vector<Case>& all) {
    for (bool tanh : {false, true}) {
        const std::string name = tanh ? "tanh" : "erf";
        all.push_back({"gelu/" + name, {normal({3, 7, 17})}, {{"tanh", tanh}}});
        all.push_back({"gelu_gradient/" + name, {normal({3, 7, 17}), normal({3, 7, 17})}, {{"tanh", tanh}}});
    }
    for (const char* op : {"silu", "relu", "negate", "exp", "tanh", "sigmoid", "erf", "sin", "cos"}) {
        all.push_back({std::string(op) + "/plain", {normal({3, 7, 17})}});
        all.push_back({std::string(op) + "/scalar", {normal({})}});
    }
    for (const char* op : {"log", "sqrt", "rsqrt"}) all.push_back({std::string(op) + "/plain", {positive({3, 7, 17})}});
    for (const char* op : {"silu_gradient", "relu_gradient"})
        all.push_back({std::string(op) + "/plain", {normal({3, 7, 17}), normal({3, 7, 17})}});
    for (const char* to : {"tested", "wide", "float32", "bf16", "fp16"})
        all.push_back({std::string("cast/") + to, {normal({3, 17})}, {{"dtype", std::string(to)}}, {}});
    all.push_back({"cast/float64", {normal({3, 17})}, {{"dtype", std::string("float64")}}});
    all.push_back({"cast/int64", {normal({3, 17})}, {{"dtype", std::string("int64")}}, {}});
    all.push_back({"cast/from_int64", {ids({3, 17}, 100)}, {{"dtype", std::string("tested")}}, {}});
    all.push_back({"cast/from_int32", {ids32({3, 17}, 100)}, {{"dtype", std::string("int64")}}, {}});
    all.push_back({"cast/to_int32", {ids({3, 17}, 100)}, {{"dtype", std::string("int32")}}, {}});
    all.push_back({"cast/from_boolean", {booleans({3, 17})}, {{"dtype", std::string("tested")}}, {}});
    all.push_back({"cast/to_boolean", {ids({3, 17}, 2)}, {{"dtype", std::string("bool")}}, {}});
}

void add_binary(std::vector<Case>& all) {
    for (const char* op : {"add", "subtract", "multiply", "divide", "maximum", "minimum"}) {
        const std::string name = op;
        auto second = [&](Shape shape) { return name == "divide" ? positive(shape) : normal(shape); };
        all.push_back({name + "/same", {normal({3, 7, 17}), second({3, 7, 17})}});
        all.push_back({name + "/row", {normal({3, 7, 17}), second({17})}});
        all.push_back({name + "/column", {normal({7, 1}), second({3, 1, 17})}});
        all.push_back({name + "/scalar", {normal({3, 17}), second({})}});
        all.push_back({name + "/scalar_first", {normal({}), second({3, 17})}});
        all.push_back({name + "/ones", {normal({1, 7, 1}), second({1, 1, 5})}});
    }
    for (const char* op : {"add", "subtract", "multiply", "maximum", "minimum"})
        all.push_back({std::string(op) + "/int64", {ids({3, 7}, 50), ids({7}, 50)}, {}, {}});
    for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
        all.push_back({std::string(op) + "/floating", {normal({3, 7, 17}), normal({7, 1})}, {}, {}});
        all.push_back({std::string(op) + "/int64", {ids({7, 1}, 9), ids({9}, 9)}, {}, {}});
    }
    for (const char* op : {"logical_and", "logical_or"})
        all.push_back({std::string(op) + "/plain", {booleans({3, 7, 17}), booleans({7, 1})}, {}, {}});
    all.push_back({"where/same", {booleans({3, 7}), normal({3, 7}), normal({3, 7})}});
    all.push_back({"where/broadcast", {booleans({7, 1}), normal({3, 1, 5}), normal({})}});
    all.push_back({"where/int64", {booleans({7}), ids({3, 7}, 9), ids({1}, 9)}, {}, {}});
}

void add_reductions(std::vector<Case>& all) {
    for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
        const std::string name = op;
        all.push_back({name + "/last", {normal({3, 7, 17})}, {{"dims", List{2}}, {"keep", false}}});
        all.push_back({name + "/keep", {normal({3, 7, 17})}, {{"dims", List{-2}}, {"keep", true}}});
        all.push_back({name + "/outer", {normal({3, 7, 17})}, {{"dims", List{0, 2}}}});
        all.push_back({name + "/all", {normal({3, 7})}, {{"dims", List{0, 1}}}});
        all.push_back({name + "/none", {normal({3, 7})}, {{"dims", List{}}}});
    }
    all.push_back({"reduce_sum/int64", {ids({3, 7}, 9)}, {{"dims", List{1}}}, {}});
    all.push_back({"reduce_max/int64", {ids({3, 7}, 9)}, {{"dims", List{1}}}, {}});
    all.push_back({"softmax/plain", {normal({3, 7, 17})}});
    all.push_back({"softmax/one", {normal({5, 1})}});
    all.push_back({"softmax/long", {normal({2, 1031})}});
    all.push_back({"softmax_gradient/plain", {normal({3, 7, 17}), positive({3, 7, 17})}});
    all.push_back({"cumsum/last", {normal({3, 7})}, {{"dim", std::int64_t{-1}}}});
    all.push_back({"cumsum/reverse", {normal({3, 7, 5})}, {{"dim", std::int64_t{1}}, {"reverse", true}}});
    all.push_back({"cumsum/int64", {ids({3, 7}, 9)}, {{"dim", std::int64_t{1}}}, {}});
}

void add_shapes(std::vector<Case>& all) {
    auto to = [](List shape) { return Attributes{{"shape", std::move(shape)}}; };
    const Attributes third = {{"dim", std::int64_t{2}}, {"start", std::int64_t{5}}, {"size", std::int64_t{7}}};
    all.push_back({"reshape/split", {normal({3, 7, 6})}, to({3, 7, 2, 3})});
    all.push_back({"reshape/join", {normal({3, 4, 5})}, to({12, 5})});
    all.push_back({"reshape/both", {normal({6, 4})}, to({2, 12})});
    all.push_back({"reshape/chain", {normal({6, 10})}, to({2, 15, 2})});
    all.push_back({"reshape/unmatched", {normal({3, 2, 5})}, to({2, 3, 5})});
    all.push_back({"reshape/ones", {normal({1, 7, 1, 3})}, to({7, 1, 3, 1, 1})});
    all.push_back({"reshape/flat", {normal({3, 1, 7})}, to({21})});
    all.push_back({"reshape/scalar", {normal({1, 1})}, to({})});
    all.push_back({"transpose/matrix", {normal({3, 7})}, {{"permutation", List{1, 0}}}});
    all.push_back({"transpose/heads", {normal({2, 3, 5, 7})}, {{"permutation", List{0, 2, 1, 3}}}});
    all.push_back({"transpose/rotate", {normal({2, 3, 5})}, {{"permutation", List{2, 0, 1}}}});
    all.push_back({"slice/last", {normal({3, 2, 17})}, third});
    all.push_back({"slice/first",
                   {normal({7, 3})},
                   {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"size", std::int64_t{1}}}});
    all.push_back({"slice_gradient/last",
                   {normal({3, 2, 7})},
                   {{"dim", std::int64_t{-1}}, {"start", std::int64_t{5}}, {"size", std::int64_t{17}}}});
    all.push_back({"slice_gradient/first",
                   {normal({2, 5})},
                   {{"dim", std::int64_t{0}}, {"start", std::int64_t{0}}, {"size", std::int64_t{3}}}});
    all.push_back({"split/qkv", {normal({3, 7, 11})}, {{"dim", std::int64_t{2}}, {"sizes", List{7, 3, 1}}}, {0, 1, 2}});
    all.push_back({"split/unused", {normal({5, 7})}, {{"dim", std::int64_t{0}}, {"sizes", List{2, 3}}}, {1}});
    all.push_back({"concat/last", {normal({3, 7}), normal({3, 1}), normal({3, 5})}, {{"dim", std::int64_t{-1}}}});
    all.push_back({"concat/middle", {normal({3, 2, 5}), normal({3, 7, 5})}, {{"dim", std::int64_t{1}}}});
    all.push_back({"concat/one", {normal({3, 7})}, {{"dim", std::int64_t{0}}}});
    all.push_back({"concat/int64", {ids({3, 7}, 9), ids({2, 7}, 9)}, {{"dim", std::int64_t{0}}}, {}});
    all.push_back({"expand/row", {normal({1, 7})}, to({3, 7})});
    all.push_back({"expand/new", {normal({7, 1})}, to({2, 3, 7, 5})});
    all.push_back({"expand/scalar", {normal({})}, to({3, 5})});
    all.push_back({"contiguous/plain", {normal({3, 7, 17})}});
    all.push_back({"contiguous/scalar", {normal({})}});
    all.push_back({"contiguous/int64", {ids({3, 7}, 9)}, {}, {}});
    all.push_back({"contiguous/boolean", {booleans({3, 7})}, {}, {}});
}

void add_indices(std::vector<Case>& all) {
    const Attributes later = {{"first_row", std::int64_t{5}}};
    const Attributes padded = {{"padding_row", std::int64_t{2}}};
    auto with_rows = [](Attributes attributes, std::int64_t rows) {
        attributes.set("rows", rows);
        return attributes;
    };
    all.push_back({"embedding/plain", {normal({11, 17}), ids({3, 7}, 11)}});
    all.push_back({"embedding/int32", {normal({11, 17}), ids32({7}, 11)}});
    all.push_back({"embedding/first_row", {normal({7, 3}), ids({3, 17}, 17)}, later});
    all.push_back({"embedding/padding", {normal({7, 3}), ids({3, 17}, 7)}, padded, {}}); // its gradient is not true
    all.push_back({"embedding_gradient/plain", {normal({3, 7, 17}), ids({3, 7}, 11)}, with_rows({}, 11)});
    all.push_back({"embedding_gradient/first_row", {normal({3, 17, 3}), ids({3, 17}, 17)}, with_rows(later, 7)});
    all.push_back({"embedding_gradient/padding", {normal({3, 17, 3}), ids32({3, 17}, 7)}, with_rows(padded, 7)});
    all.push_back({"gather/last", {normal({3, 17}), ids({3, 7}, 17)}, {{"dim", std::int64_t{-1}}}});
    all.push_back({"gather/first", {normal({5, 3}), ids32({7, 3}, 5)}, {{"dim", std::int64_t{0}}}});
    all.push_back({"gather_gradient/last",
                   {normal({3, 7}), ids({3, 7}, 17)},
                   {{"dim", std::int64_t{1}}, {"size", std::int64_t{17}}}});
    all.push_back({"gather_gradient/first",
                   {normal({7, 3}), ids32({7, 3}, 5)},
                   {{"dim", std::int64_t{0}}, {"size", std::int64_t{5}}}});
}

void add_attention(std::vector<Case>& all) {
    const std::vector<Case> cases = attention_cases();
    all.insert(all.end(), cases.begin(), cases.end());
    all.push_back({"rotary/whole", {normal({2, 7, 3, 10}), wide_normal({7, 5}), wide_normal({7, 5})}});
    all.push_back({"rotary/partial", {normal({2, 7, 3, 9}), wide_normal({7, 3}), wide_normal({7, 3})}});
    all.push_back(
        {"rotary/inverse", {normal({2, 3, 1, 6}), wide_normal({3, 1}), wide_normal({3, 1})}, {{"inverse", true}}});
}

void add_losses(std::vector<Case>& all) {
    const Forward forward{"cross_entropy", {1, 2}, {{1, 3}}};
    struct Sizes {
        std::string name;
        Shape rows;
        std::int64_t v;
        std::optional<std::int64_t> ignored;
        Attributes attributes;
    };
    const std::vector<Sizes> variants = {
        {"plain", {3, 7}, 17, {}, {}},
        {"ignored", {3, 7}, 17, -100, {}},
        {"ignore_index", {5}, 33, 7, {{"ignore_index", std::int64_t{7}}}},
        {"large", {2}, 5003, {}, {}},
        {"one", {1}, 1, {}, {}},
    };
    for (const Sizes& z : variants) {
        Shape logits = z.rows;
        logits.push_back(z.v);
        all.push_back({"cross_entropy/" + z.name, {normal(logits), ids(z.rows, z.v, z.ignored)}, z.attributes});
        all.push_back({"cross_entropy_gradient/" + z.name,
                       {wide_normal({}), normal(logits), ids(z.rows, z.v, z.ignored), wide_normal(z.rows)},
                       z.attributes,
                       {0},
                       forward});
    }
    // Parts of the classes: some targets are others'.
    const Attributes middle = {{"first_class", std::int64_t{5}}, {"classes", std::int64_t{40}}};
    const Argument targets = ids({3, 7}, 40, -100);
    all.push_back({"cross_entropy_part/middle", {normal({3, 7, 17}), targets}, middle, {}});
    all.push_back({"cross_entropy_part/whole", {normal({5, 33}), ids({5}, 33)}, {}, {}});
    all.push_back({"cross_entropy_part/large",
                   {normal({2, 5003}), ids({2}, 9000)},
                   {{"first_class", std::int64_t{3000}}, {"classes", std::int64_t{9000}}},
                   {}});
    all.push_back({"cross_entropy_join/two", {wide_normal({2, 3, 7, 2}), targets}, {}, {}});
    all.push_back({"cross_entropy_join/ignore_index",
                   {wide_normal({5, 4, 2}), ids({4}, 40, 7)},
                   {{"ignore_index", std::int64_t{7}}},
                   {}});
    all.push_back({"cross_entropy_join/one", {wide_normal({1, 1, 2}), ids({1}, 1)}, {}, {}});
    all.push_back({"cross_entropy_gradient/middle",
                   {wide_normal({}), normal({3, 7, 17}), targets, wide_positive({3, 7})},
                   middle,
                   {}});
}

// Collectives run on no device; what is known of them is their shapes and loops.
void add_collectives(std::vector<Case>& all) {
    const std::string axis = "tensor", sum = "sum";
    const List thirds = {1, 0, 3, 1, 3, 5, 1, 5, 7}, mixed = {2, 0, 2, 5, 7, 1, 2, 5};
    all.push_back({"all_reduce/sum", {normal({3, 7})}, {{"axis", axis}, {"combine", sum}}, {}});
    all.push_back({"all_reduce/maximum", {normal({3, 7})}, {{"axis", axis}, {"combine", std::string("maximum")}}, {}});
    all.push_back({"all_gather/first",
                   {normal({2, 5})},
                   {{"axis", axis}, {"dim", std::int64_t{0}}, {"parts", thirds}, {"rank", std::int64_t{1}}},
                   {}});
    all.push_back({"all_gather/segments",
                   {normal({4, 5})},
                   {{"axis", axis}, {"dim", std::int64_t{-2}}, {"parts", mixed}, {"rank", std::int64_t{0}}},
                   {}});
    all.push_back(
        {"reduce_scatter/last",
         {normal({5, 7})},
         {{"axis", axis}, {"dim", std::int64_t{1}}, {"parts", thirds}, {"rank", std::int64_t{0}}, {"combine", sum}},
         {}});
    all.push_back({"all_to_all/rows",
                   {normal({2, 7, 3})},
                   {{"axis", axis},
                    {"gather_dim", std::int64_t{0}},
                    {"gather_parts", thirds},
                    {"scatter_dim", std::int64_t{1}},
                    {"scatter_parts", thirds},
                    {"rank", std::int64_t{2}}},
                   {}});
}

void add_head(std::vector<Case>& all) {
    struct Sizes {
        std::string name;
        Shape rows;
        std::int64_t k, v, at_a_time;
        bool bias = false;
        std::optional<std::int64_t> ignored = {};
    };
    const std::vector<Sizes> variants = {
        {"plain", {3, 7}, 17, 33, 100},
        {"parts", {3, 7}, 17, 33, 4}, // the last part is a row
        {"bias", {3, 7}, 5, 33, 8, true},
        {"ignored", {5, 3}, 9, 17, 4, false, -100},
        {"ignored_bias", {15}, 9, 17, 15, true, 7},
        {"one", {1}, 1, 1, 1},
        {"wide", {5}, 3, 5003, 2, true},
        {"aligned", {2, 64}, 64, 256, 48},
        {"odd", {70}, 24, 97, 32},
        {"odd_bias", {70}, 24, 97, 32, true},
    };
    for (const Sizes& z : variants) {
        Attributes attributes = {{"rows", z.at_a_time}};
        if (z.ignored.value_or(-100) != -100) attributes.set("ignore_index", *z.ignored);
        Shape x = z.rows;
        x.push_back(z.k);
        Case one{"linear_cross_entropy_gradient/" + z.name,
                 {wide_normal({}), normal(x), small({z.v, z.k}), ids(z.rows, z.v, z.ignored)},
                 attributes};
        if (z.bias) one.inputs.push_back(small({z.v}));
        one.rounds = true; // logits and their gradients
        all.push_back(std::move(one));
    }
}

void add_sources(std::vector<Case>& all) {
    const std::string tested = "tested", wide = "wide";
    all.push_back({"dropout/plain", {normal({3, 7, 17})}, {{"p", 0.1}}});
    all.push_back({"dropout/samples", {normal({17})}, {{"p", 0.5}, {"first_sample", std::int64_t{4}}}});
    all.push_back({"dropout/none", {normal({3, 7})}, {{"p", 0.0}}});
    all.push_back(
        {"dropout/part", {normal({3, 5, 7})}, {{"p", 0.3}, {"offsets", List{2, 10}}, {"whole", List{9, 33}}}});
    all.push_back({"fill/matrix", {}, {{"dtype", tested}, {"shape", List{3, 7}}, {"value", 0.37}}, {}});
    all.push_back({"fill/scalar", {}, {{"dtype", tested}, {"shape", List{}}, {"value", -2.0}}, {}});
    all.push_back({"fill/int64", {}, {{"dtype", std::string("int64")}, {"shape", List{5}}, {"value", 3.0}}, {}});
    all.push_back({"fill/boolean", {}, {{"dtype", std::string("bool")}, {"shape", List{5}}, {"value", 1.0}}, {}});
    all.push_back({"iota/plain", {}, {{"size", std::int64_t{17}}}, {}});
    all.push_back({"iota/start", {}, {{"size", std::int64_t{7}}, {"start", std::int64_t{5}}}, {}});
    all.push_back(
        {"rotary_table/plain",
         {},
         {{"positions", std::int64_t{17}}, {"frequencies", std::vector<double>{1, 0.1, 0.01}}, {"dtype", wide}},
         {}});
    all.push_back({"rotary_table/scaled",
                   {},
                   {{"positions", std::int64_t{7}},
                    {"start", std::int64_t{1000}},
                    {"frequencies", std::vector<double>{0.7}},
                    {"scale", 1.25},
                    {"dtype", wide}},
                   {}});
    all.push_back({"step_scalar/loss_seed", {}, {{"field", std::string("loss_seed")}, {"dtype", wide}}, {}});
}

void add_steps(std::vector<Case>& all) {
    all.push_back({"accumulate/plain", {normal({7, 17})}, {{"dtype", std::string("tested")}}, {}});
    all.push_back({"accumulate/wide", {normal({3, 7, 17})}, {{"dtype", std::string("wide")}}, {}});
    all.push_back({"squared_norm/plain", {wide_normal({1031})}, {}, {}});
    all.push_back({"squared_norm/one", {wide_normal({1})}, {}, {}});
    all.push_back({"squared_norm/tested", {normal({1031})}, {}, {}});
    const Argument squares{{5}, Element::float64, Fill::positive};
    all.push_back({"sum_step/plain", {squares, wide_positive({})}, {{"squares", std::int64_t{5}}, {"loss", true}}, {}});
    all.push_back({"sum_step/without_loss", {squares}, {{"squares", std::int64_t{5}}, {"loss", false}}, {}});
    all.push_back({"finish_norm/plain", {Argument{{3}, Element::float64, Fill::positive}}, {}, {}});
    // A gap, an entry that decays, one that does not, and a tail that belongs to none.
    const Attributes ranges = {{"ranges", List{1, 33, 1, 40, 101, 0}}};
    const Argument values = wide_normal({103}), squared = wide_positive({103});
    all.push_back({"adamw/plain", {values}, ranges, {}, {}, {values, values, squared}});
    all.push_back({"adamw/master", {values}, ranges, {}, {}, {normal({103}), values, squared, values}});
    Attributes drawn = ranges; // what is of the type under test is rounded stochastically
    drawn.set("streams", List{12345678901234567, -5});
    const Argument narrow = normal({103}), narrow_squared = positive({103});
    all.push_back({"adamw/narrow", {values}, drawn, {}, {}, {narrow, narrow, narrow_squared}, true});
    all.push_back({"adamw/narrow_weights", {values}, drawn, {}, {}, {narrow, values, squared}, true});
    all.push_back({"adamw/narrow_moments", {values}, drawn, {}, {}, {narrow, narrow, narrow_squared, values}, true});
    all.push_back({"adamw/narrow_gradients", {narrow}, drawn, {}, {}, {narrow, values, squared, values}, true});
    all.push_back({"adamw/narrow_all", {narrow}, drawn, {}, {}, {narrow, narrow, narrow_squared}, true});
    all.push_back({"adamw/narrow_but_master", {narrow}, drawn, {}, {}, {narrow, narrow, narrow_squared, values}, true});
}

} // namespace

const std::vector<Case>& operator_cases() {
    static const std::vector<Case> cases = [] {
        std::vector<Case> all;
        for (auto add :
             {add_matrix, add_norms, add_fused_norms, add_gated, add_unary, add_binary, add_reductions, add_shapes,
              add_indices, add_attention, add_losses, add_head, add_sources, add_steps, add_collectives})
            add(all);
        return all;
    }();
    return cases;
}

} // namespace tutti::testing

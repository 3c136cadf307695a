// Cases of the widths that models have: 768 (packs of any type), 1000 (packs, but no whole warps of them) and 1023 (no
// packs at all), with as many rows as it takes to meet several blocks.
#include "operators/operator_cases.h"

#include <cmath>

namespace tutti::testing {
namespace {

using List = std::vector<std::int64_t>;

Argument ids(Shape shape, std::int64_t below) { return {shape, Element::int64, Fill::ids, below}; }

struct Size {
    std::int64_t rows, width;
    std::string name() const { return fmt::format("{}x{}", rows, width); }
    Shape shape() const { return {rows, width}; }
};

void add_elements(std::vector<Case>& all, const Size& z) {
    const Argument x = normal(z.shape());
    const Argument condition{z.shape(), Element::boolean, Fill::boolean};
    all.push_back({"add/" + z.name(), {x, x}});
    all.push_back({"add/row_" + z.name(), {x, normal({z.width})}});
    all.push_back({"multiply/column_" + z.name(), {x, normal({z.rows, 1})}});
    all.push_back({"multiply/scalar_" + z.name(), {x, normal({})}});
    all.push_back({"less/" + z.name(), {x, x}});
    all.push_back({"where/" + z.name(), {condition, x, normal({})}});
    all.push_back({"gelu/" + z.name(), {x}, {{"tanh", true}}});
    all.push_back({"gelu_gradient/" + z.name(), {x, x}, {{"tanh", true}}});
    all.push_back({"silu_gradient/" + z.name(), {x, x}});
    const Attributes silu = {{"activation", std::string("silu")}};
    all.push_back({"gated/" + z.name(), {x, x}, silu});
    all.push_back({"gated_gradient/" + z.name(), {x, x, x}, silu});
    all.push_back({"cast/" + z.name(), {x}, {{"dtype", std::string("wide")}}});
    all.push_back({"accumulate/" + z.name(), {x}, {{"dtype", std::string("wide")}}});
    all.push_back({"dropout/" + z.name(), {normal({3, z.rows, z.width})}, {{"p", 0.1}}});
    all.push_back({"dropout/part_" + z.name(),
                   {normal({2, z.rows, z.width})},
                   {{"p", 0.5}, {"offsets", List{8, 16}}, {"whole", List{z.rows + 8, z.width + 24}}}});
}

void add_movements(std::vector<Case>& all, const Size& z) {
    const Argument x = normal(z.shape());
    const Attributes last = {{"dim", std::int64_t{1}}};
    all.push_back({"contiguous/" + z.name(), {x}});
    all.push_back({"concat/" + z.name(), {x, x, x}, last});
    Attributes inner = last;
    inner.set("start", std::int64_t{8});
    inner.set("size", z.width + 24);
    all.push_back({"slice_gradient/" + z.name(), {x}, inner});
    all.push_back({"gather/" + z.name(), {x, ids({z.rows, 2}, z.width)}, last});
    Attributes whole = last;
    whole.set("size", z.width);
    all.push_back({"gather_gradient/" + z.name(), {normal({z.rows, 2}), ids({z.rows, 2}, z.width)}, whole});
    all.push_back({"embedding/" + z.name(), {x, ids({5, 100}, z.rows)}});
    // Rows that occur never, now and then, and so often that they are many parts.
    for (std::int64_t used : {1, 3, 20, 1000}) {
        const Attributes rows = {{"rows", used + 5}};
        all.push_back({fmt::format("embedding_gradient/{}_{}", z.name(), used),
                       {normal({2, z.rows, z.width}), ids({2, z.rows}, used)},
                       rows});
    }
}

void add_reductions(std::vector<Case>& all, const Size& z) {
    const Argument x = normal(z.shape());
    for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
        const std::string name = op;
        all.push_back({name + "/first_" + z.name(), {x}, {{"dims", List{0}}}});
        all.push_back({name + "/last_" + z.name(), {x}, {{"dims", List{1}}}});
        all.push_back({name + "/all_" + z.name(), {positive(z.shape())}, {{"dims", List{0, 1}}}});
    }
    all.push_back({"reduce_sum/batch_" + z.name(), {normal({4, z.rows, z.width})}, {{"dims", List{0}}}});
    all.push_back({"softmax/" + z.name(), {x}});
    all.push_back({"softmax_gradient/" + z.name(), {x, positive(z.shape())}});
    for (std::int64_t dim : {0, 1}) all.push_back({fmt::format("cumsum/{}_{}", z.name(), dim), {x}, {{"dim", dim}}});
}

void add_norms(std::vector<Case>& all, const Size& z) {
    const Attributes eps = {{"eps", 1e-5}};
    const Argument x = normal(z.shape()), row = normal({z.width});
    const Argument mean = wide_normal({z.rows}), rstd = wide_positive({z.rows});
    const Forward layer{"layer_norm", {1}, {{1, 2}, {2, 3}}}, rms{"rms_norm", {1, 3}, {{1, 2}}};
    all.push_back({"layer_norm/" + z.name(), {x, row, row}, eps});
    all.push_back({"layer_norm_input_gradient/" + z.name(), {x, x, mean, rstd, row}, eps, {0}, layer});
    all.push_back({"layer_norm_weight_gradient/" + z.name(), {x, x, mean, rstd}, eps, {0}, layer});
    all.push_back({"rms_norm/" + z.name(), {x, row}, eps});
    all.push_back({"rms_norm_input_gradient/" + z.name(), {x, x, rstd, row}, eps, {0}, rms});
    all.push_back({"rms_norm_weight_gradient/" + z.name(), {x, x, rstd}, eps});
    all.push_back({"bias_gradient/" + z.name(), {x}});
    all.push_back(
        {.name = "add_layer_norm/" + z.name(), .inputs = {x, x, row, row}, .attributes = eps, .rounds = true});
    all.push_back({.name = "add_rms_norm/" + z.name(), .inputs = {x, x, row}, .attributes = eps, .rounds = true});
    all.push_back({"layer_norm_gradient/" + z.name(), {x, x, mean, rstd, row, x}, eps, {0}, layer});
    all.push_back({"rms_norm_gradient/" + z.name(), {x, x, rstd, row, x}, eps, {0}, rms});
}

void add_products(std::vector<Case>& all, const Size& z) {
    const std::int64_t inner = 40;
    const Argument weight = normal({z.width, inner}), x = normal({z.rows, inner}), y = normal(z.shape());
    all.push_back({"linear/" + z.name(), {x, weight, normal({z.width})}});
    all.push_back({"linear_input_gradient/" + z.name(), {y, weight}});
    all.push_back({"linear_weight_gradient/" + z.name(), {y, x}});
    const Forward forward{"cross_entropy", {1, 2}, {{1, 3}}};
    all.push_back({"cross_entropy/" + z.name(), {y, ids({z.rows}, z.width)}});
    all.push_back({"cross_entropy_gradient/" + z.name(),
                   {wide_normal({}), y, ids({z.rows}, z.width), wide_normal({z.rows})},
                   {},
                   {0},
                   forward});
    const Argument narrow{{z.width, inner}, Element::tested, Fill::small};
    all.push_back({.name = "linear_cross_entropy_gradient/" + z.name(),
                   .inputs = {wide_normal({}), x, narrow, ids({z.rows}, z.width)},
                   .attributes = {{"rows", std::int64_t{24}}},
                   .rounds = true});
}

// Output heads with an odd vocabulary, for which a device may have ways of its own.
void add_odd_products(std::vector<Case>& all) {
    const Argument weight = normal({1027, 64}), bias = normal({1027});
    all.push_back({"linear/odd", {normal({300, 64}), weight}});
    all.push_back({"linear/odd_bias", {normal({3, 100, 64}), weight, bias}});
    all.push_back({"linear/odd_long", {normal({4133, 8}), normal({1027, 8}), bias}});
    all.push_back({.name = "linear_cross_entropy_gradient/odd",
                   .inputs = {wide_normal({}),
                              normal({300, 64}),
                              {{1027, 64}, Element::tested, Fill::small},
                              ids({300}, 1027),
                              {{1027}, Element::tested, Fill::small}},
                   .attributes = {{"rows", std::int64_t{128}}},
                   .rounds = true});
}

void add_attention(std::vector<Case>& all, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g,
                   std::int64_t d) {
    const std::string name = fmt::format("{}x{}x{}x{}", b, t, h, d);
    const Attributes attributes = {{"causal", true}, {"scale", 1 / std::sqrt(static_cast<double>(d))}};
    const Argument q = normal({b, t, h, d}), k = normal({b, t, g, d});
    all.push_back({"attention/" + name, {q, k, k}, attributes});
    Case backward{"attention_gradient/" + name, {q, q, k, k, q, wide_normal({b, h, t})}, attributes};
    backward.forward = Forward{"attention", {1, 2, 3}, {{0, 4}, {1, 5}}};
    all.push_back(std::move(backward));
    const Argument table = wide_normal({t, d / 2});
    all.push_back({"rotary/" + name, {q, table, table}});
}

void add_steps(std::vector<Case>& all) {
    all.push_back({"squared_norm/large", {wide_normal({200003})}});
    // Ranges of several blocks, at places that are and are not multiples of a pack.
    const Attributes ranges = {{"ranges", List{0, 20000, 1, 20000, 20003, 0, 20008, 29995, 1}}};
    const Argument values = wide_normal({30000}), squared = wide_positive({30000});
    all.push_back({"adamw/large", {values}, ranges, {}, {}, {values, values, squared}});
    all.push_back({"adamw/large_master", {values}, ranges, {}, {}, {normal({30000}), values, squared, values}});
}

} // namespace

const std::vector<Case>& large_cases() {
    static const std::vector<Case> cases = [] {
        std::vector<Case> all;
        for (const Size& size : {Size{257, 768}, Size{65, 1000}, Size{33, 1023}})
            for (auto add : {add_elements, add_movements, add_reductions, add_norms, add_products}) add(all, size);
        add_odd_products(all);
        add_attention(all, 2, 257, 3, 3, 64);
        add_attention(all, 1, 130, 4, 2, 128);
        // Several blocks of keys that add to the same queries, in every class of head sizes.
        for (const AttentionSizes& sizes : {
                 AttentionSizes{"packed_of_64",
                                1,
                                450,
                                450,
                                4,
                                2,
                                64,
                                64,
                                true,
                                0.1,
                                {},
                                {},
                                true,
                                true,
                                {{"window", std::int64_t{300}}}},
                 AttentionSizes{"heads_of_32", 1, 300, 301, 2, 2, 32, 24, false, 0.3},
                 AttentionSizes{"heads_of_96", 1, 390, 390, 2, 1, 96, 96},
                 AttentionSizes{"heads_of_192", 1, 300, 300, 2, 2, 192, 128, true, 0.1},
                 AttentionSizes{"heads_of_256", 1, 290, 290, 2, 1, 256, 256},
             }) {
            auto [forward, backward] = attention_and_gradient(sizes);
            all.push_back(std::move(forward));
            all.push_back(std::move(backward));
        }
        add_steps(all);
        return all;
    }();
    return cases;
}

} // namespace tutti::testing

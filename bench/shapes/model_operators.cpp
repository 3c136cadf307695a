#include "shapes/model_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

constexpr DType narrow = DType::bfloat16, wide = DType::float32;

BenchTensor data(Shape shape) { return {{narrow, shape}}; }
BenchTensor floats(Shape shape) { return {{wide, shape}}; }
BenchTensor squares(Shape shape, DType dtype = wide) { return {{dtype, shape}, 0, true}; }
BenchTensor ids(Shape shape, std::int64_t below) { return {{DType::int64, shape}, below}; }

class List {
  public:
    explicit List(std::string model) : model_(std::move(model)) {}

    void add(std::string op, std::string what, std::vector<BenchTensor> inputs, Attributes attributes = {},
             std::vector<BenchTensor> outputs = {}) {
        all.push_back(
            {model_, std::move(op), std::move(what), std::move(inputs), std::move(attributes), std::move(outputs)});
    }

    // A linear layer and its gradients; the bias is optional.
    void add_linear(std::int64_t rows, std::int64_t from, std::int64_t to, bool bias) {
        const std::string what = fmt::format("{} -> {}", from, to);
        const BenchTensor x = data({rows, from}), y = data({rows, to}), weight = data({to, from});
        if (bias)
            add("linear", what, {x, weight, data({to})});
        else
            add("linear", what, {x, weight});
        add("linear_input_gradient", what, {y, weight});
        add("linear_weight_gradient", what, {y, x});
        if (bias) add("bias_gradient", what, {y});
    }

    void add_attention(std::int64_t b, std::int64_t t, std::int64_t heads, std::int64_t groups, std::int64_t size) {
        const Attributes causal = {{"causal", true}, {"scale", 1 / std::sqrt(static_cast<double>(size))}};
        const BenchTensor q = data({b, t, heads, size}), k = data({b, t, groups, size});
        const std::string what = fmt::format("{} of {} heads", groups, heads);
        add("attention", what, {q, k, k}, causal);
        add("attention_gradient", what, {q, q, k, k, q, floats({b, heads, t})}, causal);
    }

    // Embedding, output head and loss.
    void add_vocabulary(std::int64_t rows, std::int64_t width, std::int64_t vocabulary) {
        const BenchTensor table = data({vocabulary, width}), x = data({rows, width});
        const BenchTensor tokens = ids({rows}, vocabulary), logits = data({rows, vocabulary}), one = floats({});
        const Attributes all_rows = {{"rows", vocabulary}};
        add("embedding", "tokens", {table, tokens});
        add("embedding_gradient", "tokens", {x, tokens}, all_rows);
        add("embedding_gradient", "ten tokens only", {x, ids({rows}, 10)}, all_rows);
        add("cross_entropy", "", {logits, tokens});
        add("cross_entropy_gradient", "", {one, logits, tokens, floats({rows})});
        add("linear_cross_entropy_gradient", "", {one, x, table, tokens},
            {{"rows", std::min<std::int64_t>(rows, 8192)}});
    }

    std::vector<BenchOperator> all;

  private:
    std::string model_;
};

List gpt2(std::int64_t b) {
    const std::int64_t t = 1024, h = 768, rows = b * t, vocabulary = 50257, parameters = 124439808;
    const Attributes eps = {{"eps", 1e-5}}, tanh = {{"tanh", true}}, first = {{"dims", std::vector<std::int64_t>{0}}};
    const BenchTensor x = data({b, t, h}), row = data({h}), statistic = floats({b, t}), inner = data({rows, 4 * h});
    List list("gpt2");
    list.add_vocabulary(rows, h, vocabulary);
    list.add("embedding_gradient", "positions", {data({t, h}), ids({t}, t)}, {{"rows", t}});
    list.add("add", "positions", {x, data({t, h})});
    list.add("reduce_sum", "positions", {x}, first);
    list.add("layer_norm", "", {x, row, row}, eps);
    list.add("layer_norm_input_gradient", "", {x, x, statistic, statistic, row}, eps);
    list.add("layer_norm_weight_gradient", "", {x, x, statistic, statistic}, eps);
    list.add("add_layer_norm", "", {x, x, row, row}, eps);
    list.add("layer_norm_gradient", "", {x, x, statistic, statistic, row, x}, eps);
    list.add_linear(rows, h, 3 * h, true);
    list.add_attention(b, t, 12, 12, 64);
    list.add("concat", "qkv", {x, x, x}, {{"dim", std::int64_t{2}}});
    list.add_linear(rows, h, h, true);
    list.add_linear(rows, h, 4 * h, true);
    list.add("gelu", "tanh", {inner}, tanh);
    list.add("gelu_gradient", "tanh", {inner, inner}, tanh);
    list.add_linear(rows, 4 * h, h, true);
    list.add("add", "", {x, x});
    list.add("dropout", "", {x}, {{"p", 0.1}});
    list.add("accumulate", "", {x}, {{"dtype", std::string("float32")}});
    list.add("squared_norm", "", {floats({parameters})});
    const std::vector<std::int64_t> whole = {0, parameters, 1};
    const BenchTensor all = floats({parameters}), all_narrow = data({parameters});
    list.add("adamw", "float32", {all}, {{"ranges", whole}}, {all, all, squares({parameters})});
    list.add("adamw", "bf16 with master", {all}, {{"ranges", whole}}, {all_narrow, all, squares({parameters}), all});
    list.add("adamw", "bf16", {all}, {{"ranges", whole}, {"streams", std::vector<std::int64_t>{1}}},
             {all_narrow, all_narrow, squares({parameters}, narrow)});
    return list;
}

List llama(std::int64_t b) {
    const std::int64_t t = 2048, h = 2048, heads = 32, groups = 4, size = 64, ffn = 5632, rows = b * t;
    const Attributes eps = {{"eps", 1e-5}}, silu = {{"activation", std::string("silu")}};
    const BenchTensor x = data({b, t, h}), row = data({h}), statistic = floats({b, t}), inner = data({rows, ffn});
    const BenchTensor table = floats({t, size / 2});
    List list("llama");
    list.add_vocabulary(rows, h, 32000);
    list.add("rms_norm", "", {x, row}, eps);
    list.add("rms_norm_input_gradient", "", {x, x, statistic, row}, eps);
    list.add("rms_norm_weight_gradient", "", {x, x, statistic}, eps);
    list.add("add_rms_norm", "", {x, x, row}, eps);
    list.add("rms_norm_gradient", "", {x, x, statistic, row, x}, eps);
    list.add_linear(rows, h, h, false);
    list.add_linear(rows, h, groups * size, false);
    list.add("rotary", "", {data({b, t, heads, size}), table, table});
    list.add_attention(b, t, heads, groups, size);
    list.add_linear(rows, h, ffn, false);
    list.add_linear(rows, ffn, h, false);
    list.add("silu", "", {inner});
    list.add("silu_gradient", "", {inner, inner});
    list.add("multiply", "", {inner, inner});
    list.add("gated", "silu", {inner, inner}, silu);
    list.add("gated_gradient", "silu", {inner, inner, inner}, silu);
    return list;
}

// What its other widths make different.
List qwen(const std::string& name, std::int64_t b, std::int64_t h, std::int64_t heads, std::int64_t ffn) {
    const std::int64_t t = 1024, size = h / heads, rows = b * t;
    const Attributes eps = {{"eps", 1e-6}}, silu = {{"activation", std::string("silu")}};
    const BenchTensor x = data({b, t, h}), row = data({h}), statistic = floats({b, t}), inner = data({rows, ffn});
    const BenchTensor table = floats({t, size / 2});
    List list(name);
    list.add("rms_norm", "", {x, row}, eps);
    list.add("add_rms_norm", "", {x, x, row}, eps);
    list.add("rms_norm_gradient", "", {x, x, statistic, row, x}, eps);
    list.add("rotary", "", {data({b, t, heads, size}), table, table});
    list.add_attention(b, t, heads, 2, size);
    list.add("gated", "silu", {inner, inner}, silu);
    list.add("gated_gradient", "silu", {inner, inner, inner}, silu);
    return list;
}

} // namespace

std::vector<BenchOperator> model_operators(std::int64_t batch) {
    std::vector<BenchOperator> all = gpt2(batch).all;
    const std::int64_t fewer = std::max<std::int64_t>(batch / 4, 1);
    for (const List& more :
         {llama(fewer), qwen("qwen-0.5b", fewer, 896, 14, 4864), qwen("qwen-1.5b", fewer, 1536, 12, 8960)})
        all.insert(all.end(), more.all.begin(), more.all.end());
    return all;
}

} // namespace tutti

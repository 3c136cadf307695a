#include "models/builder.h"

#include "base/checked.h"
#include "base/error.h"
#include "ops/operators.h"

namespace tutti::models {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 56;

std::string text(DType dtype) { return std::string(name_of(dtype)); }

double rounded_to(DType dtype, double value) {
    const auto single = static_cast<float>(value);
    return dtype == DType::bfloat16 ? static_cast<double>(static_cast<float>(BFloat16(single)))
                                    : static_cast<double>(single);
}

} // namespace

Builder::Builder(const ModelShape& shape)
    : shape_(shape), graph_(ops::all_operators()),
      input_ids_(graph_.add_input("input_ids", {DType::int64, {shape.batch, shape.sequence}})),
      targets_(graph_.add_input("targets", {DType::int64, {shape.batch, shape.sequence}})) {
    if (shape.documents) documents_ = graph_.add_input("documents", {DType::int32, {shape.batch, shape.sequence}});
}

std::int32_t Builder::stored(const std::string& name, const Shape& shape, const Initialisation& how) {
    std::optional<std::int64_t> elements = 1;
    for (std::int64_t size : shape)
        if (elements) elements = checked_multiply(*elements, size);
    if (!elements || *elements > most_elements) fail("the tensor {} of {} is too large", name, to_string(shape));
    initialisation_.push_back(how);
    return graph_.add_stored(name, {shape_.dtype, shape});
}

ValueId Builder::parameter(const std::string& name, const Shape& shape, const Initialisation& how) {
    const auto known = parameters_.find(name);
    if (known != parameters_.end()) {
        TUTTI_CHECK(graph_.shape(known->second) == shape, "{} is {} and {}", name,
                    to_string(graph_.shape(known->second)), to_string(shape));
        return known->second;
    }
    return parameters_[name] = graph_.add_parameter(stored(name, shape, how));
}

ValueId Builder::conv1d_parameter(const std::string& name, std::int64_t in, std::int64_t out,
                                  const Initialisation& how) {
    TUTTI_CHECK(!parameters_.contains(name), "{} is there already", name);
    return parameters_[name] = graph_.add_parameter(stored(name, {in, out}, how), {out, in}, {{1, out}, 0});
}

ValueId Builder::linear(ValueId x, const std::string& name, std::int64_t out, bool bias) {
    const ValueId weight = parameter(name + ".weight", {out, width(x)}, Initialisation::normal(deviation_));
    return linear_with(x, weight, bias ? parameter(name + ".bias", {out}, Initialisation::constant(0)) : ValueId::none,
                       name);
}

ValueId Builder::conv1d(ValueId x, const std::string& name, std::int64_t out, double deviation) {
    const ValueId weight = conv1d_parameter(name + ".weight", width(x), out, Initialisation::normal(deviation));
    return linear_with(x, weight, parameter(name + ".bias", {out}, Initialisation::constant(0)), name);
}

ValueId Builder::linear_with(ValueId x, ValueId weight, ValueId bias, const std::string& source) {
    std::vector<ValueId> inputs = {x, weight};
    if (bias != ValueId::none) inputs.push_back(bias);
    return emit("linear", std::move(inputs), {}, source);
}

ValueId Builder::layer_norm(ValueId x, const std::string& name, double eps, bool affine) {
    std::vector<ValueId> inputs = {x};
    if (affine) {
        inputs.push_back(parameter(name + ".weight", {width(x)}, Initialisation::constant(1)));
        inputs.push_back(parameter(name + ".bias", {width(x)}, Initialisation::constant(0)));
    }
    return emit("layer_norm", std::move(inputs), {{"eps", eps}}, name);
}

ValueId Builder::rms_norm(ValueId x, const std::string& name, double eps, bool unit_offset) {
    const ValueId scale = parameter(name + ".weight", {width(x)}, Initialisation::constant(unit_offset ? 0 : 1));
    return emit("rms_norm", {x, scale}, {{"eps", eps}, {"unit_offset", unit_offset}}, name);
}

ValueId Builder::embedding(ValueId ids, const std::string& name, std::int64_t rows, std::int64_t columns,
                           std::int64_t padding_row) {
    Initialisation how = Initialisation::normal(deviation_);
    Attributes attributes;
    if (padding_row >= 0) {
        how.zero_row = padding_row;
        how.row_size = columns;
        attributes.set("padding_row", padding_row);
    }
    return emit("embedding", {parameter(name + ".weight", {rows, columns}, how), ids}, attributes, name);
}

// Several of Transformers' names are one function: those with "gelu" and neither "quick" nor erf are the tanh
// approximation, written in different ways.
ValueId Builder::activation(ValueId x, std::string_view name, const std::string& source) {
    if (name == "gelu" || name == "gelu_python") return emit("gelu", {x}, {}, source);
    if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" || name == "gelu_fast" ||
        name == "gelu_accurate")
        return emit("gelu", {x}, {{"tanh", true}}, source);
    if (name == "silu" || name == "swish") return emit("silu", {x}, {}, source);
    if (name == "relu" || name == "tanh" || name == "sigmoid") return emit(name, {x}, {}, source);
    if (name == "relu2") {
        const ValueId positive = emit("relu", {x}, {}, source);
        return multiply(positive, positive, source);
    }
    if (name == "quick_gelu") return multiply(x, emit("sigmoid", {times(x, 1.702, source)}, {}, source), source);
    TUTTI_CHECK(name == "linear", "there is no activation {}", name);
    return x;
}

std::span<const std::string_view> activation_names() {
    static constexpr std::string_view names[] = {"gelu",
                                                 "gelu_python",
                                                 "gelu_new",
                                                 "gelu_pytorch_tanh",
                                                 "gelu_python_tanh",
                                                 "gelu_fast",
                                                 "gelu_accurate",
                                                 "silu",
                                                 "swish",
                                                 "relu",
                                                 "relu2",
                                                 "quick_gelu",
                                                 "tanh",
                                                 "sigmoid",
                                                 "linear"};
    return names;
}

ValueId Builder::dropout(ValueId x, double p, const std::string& source) {
    return p == 0 ? x : emit("dropout", {x}, {{"p", p}}, source);
}

ValueId Builder::add(ValueId a, ValueId b, const std::string& source) { return emit("add", {a, b}, {}, source); }

ValueId Builder::multiply(ValueId a, ValueId b, const std::string& source) {
    return emit("multiply", {a, b}, {}, source);
}

ValueId Builder::times(ValueId x, double factor, const std::string& source) {
    const DType dtype = graph_.type(x).dtype;
    const ValueId constant = emit(
        "fill", {},
        {{"dtype", text(dtype)}, {"shape", std::vector<std::int64_t>{}}, {"value", rounded_to(dtype, factor)}}, source);
    return multiply(x, constant, source);
}

RotaryTables Builder::rotary_tables(const std::vector<double>& frequencies, double scale, const std::string& source) {
    if (frequencies.empty()) return {};
    const DType dtype = shape_.dtype == DType::bfloat16 ? DType::float32 : shape_.dtype;
    const NodeId node = graph_.add_node("rotary_table", {},
                                        {{"positions", shape_.sequence},
                                         {"start", std::int64_t{0}},
                                         {"frequencies", frequencies},
                                         {"scale", scale},
                                         {"dtype", text(dtype)}},
                                        source);
    return {graph_.node(node).outputs[0], graph_.node(node).outputs[1]};
}

ValueId Builder::rotary(ValueId heads, const RotaryTables& tables, const std::string& source) {
    if (tables.cos == ValueId::none) return heads;
    return emit("rotary", {heads, tables.cos, tables.sin}, {{"inverse", false}}, source);
}

ValueId Builder::reshape(ValueId x, std::vector<std::int64_t> shape, const std::string& source) {
    return emit("reshape", {x}, {{"shape", std::move(shape)}}, source);
}

ValueId Builder::split_heads(ValueId x, std::int64_t heads, const std::string& source) {
    return reshape(x, {shape_.batch, shape_.sequence, heads, divide_exactly(width(x), heads)}, source);
}

ValueId Builder::merge_heads(ValueId x, const std::string& source) {
    return reshape(x, {shape_.batch, shape_.sequence, graph_.shape(x)[2] * graph_.shape(x)[3]}, source);
}

std::vector<ValueId> Builder::split(ValueId x, std::int64_t parts, const std::string& source) {
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), divide_exactly(width(x), parts));
    const std::int64_t last = graph_.shape(x).rank() - 1;
    return graph_.node(graph_.add_node("split", {x}, {{"dim", last}, {"sizes", sizes}}, source)).outputs;
}

ValueId Builder::attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options,
                           const std::string& source) {
    Attributes attributes = {{"causal", options.causal}, {"scale", options.scale}};
    if (options.dropout > 0) attributes.set("dropout", options.dropout);
    // A window that holds the sequence is none.
    if (options.window > 0 && options.window < shape_.sequence) attributes.set("window", options.window);
    if (options.soft_cap > 0) attributes.set("soft_cap", options.soft_cap);
    std::vector<ValueId> inputs = {q, k, v};
    std::vector<std::string> takes;
    auto take = [&](ValueId input, const char* name) {
        if (input == ValueId::none) return;
        inputs.push_back(input);
        takes.emplace_back(name);
    };
    take(options.bias, "bias");
    take(options.sinks, "sinks");
    take(documents_, "documents");
    if (documents_ != ValueId::none) inputs.push_back(documents_); // of the queries, and of the keys
    if (!takes.empty()) attributes.set("takes", fmt::format("{}", fmt::join(takes, " ")));
    return merge_heads(emit("attention", std::move(inputs), std::move(attributes), source), source);
}

ValueId Builder::fill_ids(std::int64_t value, const Shape& shape, const std::string& source) {
    return emit("fill", {},
                {{"dtype", text(DType::int64)},
                 {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                 {"value", static_cast<double>(value)}},
                source);
}

ValueId Builder::positions(std::int64_t start, const std::string& source) {
    const ValueId all = emit("iota", {}, {{"size", shape_.sequence}, {"start", start}}, source);
    if (documents_ == ValueId::none) return all;
    const ValueId begins = emit("cast", {documents_}, {{"dtype", text(DType::int64)}}, source);
    return emit("subtract", {all, begins}, {}, source);
}

ValueId Builder::positions_without_padding(std::int64_t padding, const std::string& source) {
    const ValueId pad = fill_ids(padding, {}, source);
    const ValueId counted =
        emit("cast", {emit("not_equal", {input_ids_, pad}, {}, source)}, {{"dtype", text(DType::int64)}}, source);
    const ValueId so_far = emit("cumsum", {counted}, {{"dim", std::int64_t{1}}, {"reverse", false}}, source);
    return add(multiply(so_far, counted, source), pad, source);
}

Model Builder::finish(ModelFacts facts, ValueId logits) {
    const ValueId loss = emit("cross_entropy", {logits, targets_}, {{"ignore_index", std::int64_t{-100}}}, "loss");
    graph_.add_output({"logits", logits, ValueId::none});
    graph_.add_output({"loss", loss, ValueId::none});
    return {std::move(facts),          std::move(graph_), input_ids_, targets_, documents_, logits, loss,
            std::move(initialisation_)};
}

} // namespace tutti::models

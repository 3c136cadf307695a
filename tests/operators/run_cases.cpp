// Turning cases into tensors, running them, and comparing what comes out.
#include "backend/random_stream.h"
#include "backend/reference/reference.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

DType wider(DType dtype) { return size_of(dtype) == 2 ? DType::float32 : dtype; }

// Random numbers of a tensor that depend on nothing but the case's name and the tensor's number.
class Numbers {
  public:
    Numbers(const std::string& name, std::size_t tensor) : state_(mix_bits(hash_of(name), tensor)) {}
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
    double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
    std::int64_t below(std::int64_t limit) {
        return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit));
    }

  private:
    std::uint64_t next() { return mix_bits(state_, ++count_); }
    std::uint64_t state_, count_ = 0;
};

double draw(const Argument& argument, Numbers& numbers, std::size_t i) {
    switch (argument.fill) {
    case Fill::normal: return numbers.normal();
    case Fill::small: return 0.25 * numbers.normal();
    case Fill::positive: return 0.5 + numbers.uniform();
    case Fill::ids:
        if (argument.instead && i % 3 == 1) return static_cast<double>(*argument.instead);
        return static_cast<double>(numbers.below(argument.below));
    case Fill::boolean: return numbers.uniform() < 0.5;
    case Fill::mask: return numbers.uniform() < 0.3 ? -std::numeric_limits<double>::infinity() : numbers.normal();
    case Fill::documents: break; // below
    }
    return 0;
}

// Per sample and position, where its document begins: the same borders whoever asks, one in about six positions.
std::vector<double> draw_documents(const Argument& argument) {
    std::vector<double> starts;
    for (std::int64_t sample = 0; sample < argument.shape[0]; ++sample) {
        std::int64_t start = 0;
        for (std::int64_t p = 0; p < argument.below + argument.shape[1]; ++p) {
            if (mix_bits(static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(sample)) % 6 == 0) start = p;
            if (p >= argument.below) starts.push_back(static_cast<double>(start));
        }
    }
    return starts;
}

HostTensor make(const Argument& argument, DType tested, Layout layout, Numbers numbers) {
    const TensorType type{dtype_of(argument.element, tested), argument.shape};
    std::vector<double> storage(static_cast<std::size_t>(extent_of(type.shape, layout)));
    for (std::size_t i = 0; i < storage.size(); ++i) storage[i] = draw(argument, numbers, i);
    HostTensor made{type, layout, decode(encode(storage, type.dtype), type.dtype)};
    if (argument.fill == Fill::documents) made.set_values(draw_documents(argument));
    return made;
}

std::vector<TensorType> types_of(const std::vector<HostTensor>& tensors) {
    std::vector<TensorType> types;
    for (const HostTensor& tensor : tensors) types.push_back(tensor.type);
    return types;
}

} // namespace

DType dtype_of(Element element, DType tested) {
    switch (element) {
    case Element::tested: return tested;
    case Element::wide: return wider(tested);
    case Element::float64: return DType::float64;
    case Element::int64: return DType::int64;
    case Element::int32: return DType::int32;
    case Element::boolean: return DType::boolean;
    }
    return tested;
}

bool is_differentiable(const Argument& argument) {
    return argument.element == Element::tested && argument.fill != Fill::mask;
}

Attributes attributes_of(const Case& one, DType tested) {
    Attributes attributes = one.attributes;
    if (!attributes.has("dtype")) return attributes;
    if (attributes.text("dtype") == "tested") attributes.set("dtype", std::string(tutti::name_of(tested)));
    if (attributes.text("dtype") == "wide") attributes.set("dtype", std::string(tutti::name_of(wider(tested))));
    return attributes;
}

std::string_view name_of(Look look) {
    constexpr std::string_view names[] = {"dense",        "padded",         "permuted",   "expanded",
                                          "column_major", "padded_columns", "every_other"};
    return names[static_cast<std::size_t>(look)];
}

Layout layout_of(Look look, const Shape& shape) {
    const int last = shape.rank() - 1;
    Layout layout = dense_layout(shape);
    if (shape.empty()) return layout;
    auto pad = [&](Shape widened, int by) { // strides of a larger tensor, of which this is a piece
        widened[last] += by;
        return Layout{dense_strides(widened), 2};
    };
    switch (look) {
    case Look::dense: break;
    case Look::padded: layout = pad(shape, 5); break;
    case Look::permuted:
        if (last >= 2) {
            Shape stored = shape;
            std::swap(stored[last - 1], stored[last - 2]);
            layout.strides = dense_strides(stored);
            std::swap(layout.strides[last - 1], layout.strides[last - 2]);
        }
        break;
    case Look::expanded:
        if (last >= 1) layout.strides[0] = 0;
        break;
    case Look::column_major:
    case Look::padded_columns: {
        const std::int64_t rows = shape.elements() / shape[last] + (look == Look::padded_columns ? 3 : 0);
        Shape outer = shape;
        outer[last] = 1;
        layout.strides = dense_strides(outer);
        layout.strides[last] = rows;
        if (look == Look::padded_columns) layout.offset = 1;
        break;
    }
    case Look::every_other:
        for (std::int64_t& stride : layout.strides) stride *= 2;
        break;
    }
    return layout;
}

std::optional<std::vector<HostTensor>> make_inputs(const Case& one, DType tested, Look look) {
    const Operator& op = all_operators().at(one.op());
    std::vector<HostTensor> inputs;
    bool changed = look == Look::dense;
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
        const Shape& shape = one.inputs[i].shape;
        Layout layout = layout_of(look, shape);
        const bool derived = one.forward && std::ranges::any_of(one.forward->outputs,
                                                                [&](const auto& pair) { return pair.second == i; });
        if (derived || op.view || !accepted(op.accepts, shape, layout.strides)) layout = dense_layout(shape);
        changed |= !is_dense(shape, layout.strides);
        inputs.push_back(make(one.inputs[i], tested, layout, Numbers(one.name, i)));
    }
    if (!changed) return std::nullopt;
    if (!one.forward) return inputs;
    static const auto oracle = make_reference_device();
    std::vector<HostTensor> from;
    for (std::size_t i : one.forward->inputs) from.push_back(inputs[i]);
    const auto results = evaluate(*oracle, all_operators().at(one.forward->op), one.attributes, from);
    for (const auto& [output, input] : one.forward->outputs) {
        const DType dtype = inputs[input].type.dtype;
        inputs[input].set_values(decode(encode(results[output].values(), dtype), dtype));
    }
    return inputs;
}

std::vector<HostTensor> make_outputs(const Case& one, DType tested, const std::vector<HostTensor>& inputs, Look look) {
    std::vector<HostTensor> outputs;
    std::vector<Argument> arguments = one.updated;
    std::vector<TensorType> types;
    if (arguments.empty())
        for (const TensorType& type :
             all_operators().at(one.op()).infer(types_of(inputs), attributes_of(one, tested))) {
            arguments.push_back({type.shape});
            types.push_back(type);
        }
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const DType dtype = one.updated.empty() ? types[i].dtype : dtype_of(arguments[i].element, tested);
        HostTensor made = make(arguments[i], dtype, layout_of(look, arguments[i].shape), Numbers(one.name, 100 + i));
        outputs.push_back({{dtype, arguments[i].shape}, made.layout, decode(encode(made.storage, dtype), dtype)});
    }
    return outputs;
}

std::vector<HostTensor> in_type(const Case& one, DType tested, const std::vector<HostTensor>& inputs) {
    std::vector<HostTensor> result;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        result.push_back(
            dense_tensor({dtype_of(one.inputs[i].element, tested), inputs[i].type.shape}, inputs[i].values()));
    return result;
}

StepScalars case_scalars() {
    StepScalars scalars;
    scalars.step = 3;
    scalars.first_sample = 40;
    scalars.seed = 1234;
    scalars.inverse_tokens = 0.125;
    scalars.loss_scale = 4;
    scalars.max_norm = 0.25;
    scalars.learning_rate = 1e-2;
    scalars.weight_decay = 0.1;
    scalars.clip_factor = 0.75;
    return scalars;
}

StepScalars run_operator(const Device& device, const Case& one, DType tested, const std::vector<HostTensor>& inputs,
                         std::vector<HostTensor>& outputs, RunOptions options) {
    StepScalars scalars = case_scalars();
    options.source = case_source;
    run_kernel(device, one.op(), attributes_of(one, tested), inputs, outputs, scalars, options);
    return scalars;
}

std::vector<HostTensor> evaluate(const Device& device, const Operator& op, const Attributes& attributes,
                                 const std::vector<HostTensor>& inputs) {
    std::vector<HostTensor> outputs;
    const std::vector<TensorType> types = op.infer(types_of(inputs), attributes);
    if (op.view) {
        const auto layouts = op.view(inputs[0].type, inputs[0].layout, attributes);
        TUTTI_CHECK(layouts.has_value(), "{} is no view of {}", op.name, to_string(inputs[0].type));
        for (std::size_t i = 0; i < types.size(); ++i) outputs.push_back({types[i], (*layouts)[i], inputs[0].storage});
        return outputs;
    }
    for (const TensorType& type : types) outputs.push_back(dense_tensor(type));
    StepScalars scalars = case_scalars();
    run_kernel(device, std::string(op.name), attributes, inputs, outputs, scalars, {.source = case_source});
    return outputs;
}

std::string difference(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                       double tolerance) {
    if (got.size() != expected.size())
        return fmt::format("{}: {} values instead of {}", what, got.size(), expected.size());
    double largest = 0;
    for (double value : expected)
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] == expected[i]) continue;
        if (std::isfinite(expected[i]) && std::abs(got[i] - expected[i]) <= tolerance * largest) continue;
        return fmt::format("{}: element {} of {} is {} instead of {} (largest {}, tolerance {})", what, i, got.size(),
                           got[i], expected[i], largest, tolerance);
    }
    return {};
}

} // namespace tutti::testing

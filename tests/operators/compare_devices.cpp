// One device against another, in all the ways a kernel may be asked for.
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <algorithm>
#include <set>

namespace tutti::testing {

using namespace backend;
using namespace ops;
namespace {

struct Way {
    std::string name;
    Look inputs = Look::dense;
    Look outputs = Look::dense;
    RunOptions options = {};
    bool narrow = false; // sums are stored in the type under test
};

// Gradients of weights have the layout of the parameter, which may be a transposed piece of a stored tensor; other
// results may be pieces of a larger one.
std::vector<Look> outputs_of(const Operator& op) {
    if (op.writes == Accepts::rows) return {Look::padded, Look::permuted};
    if (op.accumulates_from < 0) return {};
    if (op.accumulates_into == Accepts::matrix) return {Look::padded, Look::column_major, Look::padded_columns};
    if (op.accumulates_into == Accepts::strided)
        return {Look::padded, Look::column_major, Look::padded_columns, Look::every_other};
    return {};
}

std::vector<Way> ways_of(const Operator& op) {
    std::vector<Way> ways;
    for (Look look : all_looks) ways.push_back({std::string(name_of(look)), look});
    if (op.overwrites >= 0) ways.push_back({"in place", Look::dense, Look::dense, {.in_place = op.overwrites}});
    if (op.accumulates_from >= 0) {
        ways.push_back({"accumulating", Look::dense, Look::dense, {.accumulate = true}});
        ways.push_back({"narrow", Look::dense, Look::dense, {}, true});
        ways.push_back({"narrow, accumulating", Look::dense, Look::dense, {.accumulate = true}, true});
    }
    for (Look look : outputs_of(op))
        for (bool accumulate : {false, true}) {
            if (accumulate && op.accumulates_from < 0) continue;
            for (bool narrow : {false, true}) {
                if (narrow && op.accumulates_from < 0) continue;
                ways.push_back({fmt::format("into {}{}{}", narrow ? "narrow " : "", name_of(look),
                                            accumulate ? ", accumulating" : ""),
                                Look::dense,
                                look,
                                {.accumulate = accumulate},
                                narrow});
            }
        }
    return ways;
}

double tolerance_of(DType output, DType tested, Tolerances tolerances) {
    if (!is_floating(output)) return 0;
    return output == tested ? tolerances.tested : tolerances.wide;
}

// Some casts are of types that a device has no use for.
bool has_use_for(const Device& device, const Case& one, const std::vector<HostTensor>& inputs,
                 const std::vector<HostTensor>& outputs) {
    if (one.op() != "cast") return true;
    return device.supports(inputs[0].type.dtype) && device.supports(outputs[0].type.dtype);
}

class Comparison {
  public:
    Comparison(const Device& device, const Device& oracle, DType tested, Tolerances tolerances)
        : device_(device), oracle_(oracle), tested_(tested), tolerances_(tolerances) {}

    void run(const Case& one, const Way& way) {
        const auto inputs = make_inputs(one, tested_, way.inputs);
        if (!inputs) return;
        std::vector<HostTensor> outputs = make_outputs(one, tested_, *inputs, way.outputs);
        if (way.narrow && !narrow(one, outputs)) return;
        if (!has_use_for(device_, one, *inputs, outputs)) return;
        if (const auto over = static_cast<std::size_t>(way.options.in_place); way.options.in_place >= 0)
            if (over >= inputs->size() || (*inputs)[over].type != outputs[0].type) return;
        const std::string what = fmt::format("{} {} {}", one.name, tutti::name_of(tested_), way.name);
        const std::vector<HostTensor> before = outputs;
        try {
            const StepScalars after = run_operator(device_, one, tested_, *inputs, outputs, way.options);
            compare(what, one, *inputs, before, outputs, after, way.options.accumulate);
        } catch (const std::exception& error) {
            differences.push_back(fmt::format("{}: {}", what, error.what()));
        }
    }

    std::vector<std::string> differences;

  private:
    // Whether there is anything to store narrower.
    bool narrow(const Case& one, std::vector<HostTensor>& outputs) const {
        bool any = false;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            DType& dtype = outputs[i].type.dtype;
            if (!all_operators().at(one.op()).accumulates(i) || size_of(dtype) <= size_of(tested_)) continue;
            dtype = tested_;
            outputs[i].storage = decode(encode(outputs[i].storage, tested_), tested_);
            any = true;
        }
        return any;
    }

    void compare(const std::string& what, const Case& one, const std::vector<HostTensor>& inputs,
                 const std::vector<HostTensor>& before, const std::vector<HostTensor>& outputs,
                 const StepScalars& after, bool accumulate) {
        // The oracle starts from the same numbers, in float64. Only types that the case fixes stay what they are.
        const DType dtype = one.rounds ? tested_ : DType::float64;
        std::vector<HostTensor> expected;
        const std::vector<HostTensor> exact = in_type(one, dtype, inputs);
        for (HostTensor& output : make_outputs(one, dtype, exact)) expected.push_back(std::move(output));
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i].set_values(before[i].values());
        const StepScalars wanted = run_operator(oracle_, one, dtype, exact, expected);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            std::vector<double> values = expected[i].values();
            const std::vector<double> held = before[i].values();
            if (accumulate && all_operators().at(one.op()).accumulates(i))
                for (std::size_t j = 0; j < values.size(); ++j) values[j] += held[j];
            note(difference(fmt::format("{}, output {}", what, i), outputs[i].values(), values,
                            tolerance_of(outputs[i].type.dtype, tested_, tolerances_)));
            untouched(fmt::format("{}, output {}", what, i), before[i], outputs[i]);
        }
        note(difference(what + ", scalars",
                        {after.loss, after.gradient_norm, after.clip_factor, static_cast<double>(after.finite)},
                        {wanted.loss, wanted.gradient_norm, wanted.clip_factor, static_cast<double>(wanted.finite)},
                        tolerances_.wide));
    }

    // What lies between the elements of an output belongs to others.
    void untouched(const std::string& what, const HostTensor& before, const HostTensor& after) {
        if (before.storage.size() != after.storage.size()) return;
        std::vector<bool> own(before.storage.size(), false);
        for (std::int64_t i = 0; i < before.type.elements(); ++i) own[before.place(i)] = true;
        for (std::size_t i = 0; i < own.size(); ++i)
            if (!own[i] && before.storage[i] != after.storage[i])
                return note(fmt::format("{}: wrote element {} of the storage, which is not its own", what, i));
    }

    void note(std::string text) {
        if (!text.empty()) differences.push_back(std::move(text));
    }

    const Device& device_;
    const Device& oracle_;
    DType tested_;
    Tolerances tolerances_;
};

} // namespace

std::vector<std::string> compare_devices(const Device& device, const Device& oracle, DType tested,
                                         Tolerances tolerances, const std::vector<Case>& cases,
                                         std::span<const Look> looks) {
    Comparison comparison(device, oracle, tested, tolerances);
    for (const Case& one : cases) {
        const Operator& op = all_operators().at(one.op());
        if (op.view || op.collective) continue;
        for (const Way& way : ways_of(op))
            if (std::ranges::find(looks, way.inputs) != looks.end()) comparison.run(one, way);
    }
    return comparison.differences;
}

std::vector<std::string> missing_kernels(const Device& device, DType tested) {
    std::set<std::string> missing;
    for (const Operator& op : all_operators().all())
        if (!op.view && !op.collective) missing.insert(std::string(op.name));
    for (const Case& one : operator_cases()) missing.erase(one.op());
    for (const Case& one : operator_cases()) {
        if (const Operator& op = all_operators().at(one.op()); op.view || op.collective) continue;
        const std::vector<HostTensor> inputs = *make_inputs(one, tested);
        const std::vector<HostTensor> outputs = make_outputs(one, tested, inputs);
        if (!has_use_for(device, one, inputs, outputs)) continue;
        KernelRequest request{one.op(), attributes_of(one, tested), {}, {}, false, {}};
        for (const HostTensor& tensor : inputs) request.inputs.push_back({tensor.type, tensor.layout.strides});
        for (const HostTensor& tensor : outputs) request.outputs.push_back({tensor.type, tensor.layout.strides});
        try {
            device.prepare(request);
        } catch (const Error&) {
            missing.insert(one.op());
        }
    }
    return {missing.begin(), missing.end()};
}

} // namespace tutti::testing

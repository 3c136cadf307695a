// Every gradient against central differences of the forward, in float64.
#include "backend/reference/reference.h"
#include "base/philox.h"
#include "graph/autodiff.h"
#include "graph/verify.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

// A number in [-1, 1) that depends on nothing but its place.
double noise(std::uint64_t stream, std::uint64_t i) {
    return static_cast<double>(mix_bits(stream, i) >> 11) * 0x1p-52 - 1;
}

// loss = sum over the outputs of <output, weights>, with the case's floating inputs as parameters.
class GradientCheck {
  public:
    GradientCheck(const Device& device, const Case& one, Look look)
        : one_(one), graph_(all_operators()), inputs_(*make_inputs(one, DType::float64)) {
        std::vector<ValueId> operands;
        for (std::size_t i = 0; i < inputs_.size(); ++i) operands.push_back(add_operand(i, look));
        const NodeId node = graph_.add_node(one.op(), operands, one.attributes, case_source);
        for (std::size_t output : one.differentiable) add_to_loss(graph_.node(node).outputs[output]);
        forward_ = graph_.nodes().size();
        const Attributes unit = {
            {"dtype", std::string("float64")}, {"shape", std::vector<std::int64_t>{}}, {"value", 1.0}};
        differentiate(graph_, loss_, graph_.add("fill", {}, unit));
        verify(graph_);
        interpreter_ = std::make_unique<Interpreter>(graph_, device);
        interpreter_->scalars = case_scalars();
        for (const auto& [value, values] : constants_) interpreter_->set(value, values);
        for (std::size_t p = 0; p < stored_.size(); ++p) interpreter_->set_stored(p, stored_[p].storage);
        interpreter_->run();
    }

    // A line per parameter whose gradient is not that of the forward.
    std::vector<std::string> run() {
        std::vector<std::string> wrong;
        for (std::size_t p = 0; p < stored_.size(); ++p) {
            const std::vector<double> gradient = interpreter_->gradient_of(graph_.parameters()[p].value);
            double norm = 0;
            for (double value : gradient) norm += value * value;
            norm = std::sqrt(norm);
            for (std::size_t trial = 0; trial < trials(gradient.size()); ++trial) {
                const std::vector<double> direction = direction_of(gradient.size(), trial);
                double expected = 0;
                for (std::size_t i = 0; i < gradient.size(); ++i) expected += gradient[i] * direction[i];
                const double measured = slope(p, direction);
                if (std::abs(measured - expected) <= 1e-6 * (norm + 1e-3)) continue;
                wrong.push_back(
                    fmt::format("{}: the derivative by input {} in direction {} is {}, its gradient says {}", one_.name,
                                p, trial, measured, expected));
                break;
            }
        }
        return wrong;
    }

  private:
    ValueId add_operand(std::size_t i, Look look) {
        const HostTensor& input = inputs_[i];
        if (!is_differentiable(one_.inputs[i])) {
            const ValueId value = graph_.add_input(fmt::format("x{}", i), input.type);
            constants_.emplace_back(value, input.values());
            return value;
        }
        HostTensor stored{input.type, layout_of(look, input.type.shape), {}};
        const std::int64_t extent = extent_of(stored.type.shape, stored.layout);
        stored.storage.resize(static_cast<std::size_t>(extent));
        stored.set_values(input.values());
        stored_.push_back(stored);
        const std::int32_t tensor = graph_.add_stored(fmt::format("p{}", i), {DType::float64, {extent}});
        return graph_.add_parameter(tensor, input.type.shape, stored.layout);
    }

    void add_to_loss(ValueId output) {
        const ValueId weights = graph_.add_input("weights", graph_.type(output));
        std::vector<double> values;
        for (std::int64_t i = 0; i < graph_.type(output).elements(); ++i)
            values.push_back(noise(index(output), static_cast<std::uint64_t>(i)));
        constants_.emplace_back(weights, values);
        std::vector<std::int64_t> dims;
        for (int d = 0; d < graph_.shape(output).rank(); ++d) dims.push_back(d);
        const ValueId product = graph_.add("multiply", {output, weights});
        const ValueId sum = graph_.add("reduce_sum", {product}, {{"dims", dims}});
        loss_ = loss_ == ValueId::none ? sum : graph_.add("add", {loss_, sum});
    }

    // Each element by itself; where there are many, some of them and a few directions through all.
    static std::size_t trials(std::size_t elements) { return elements <= 200 ? elements : 40; }
    static std::vector<double> direction_of(std::size_t elements, std::size_t trial) {
        std::vector<double> direction(elements, 0);
        if (elements <= 200 || trial >= 8)
            direction[elements <= 200 ? trial : trial * 7919 % elements] = 1;
        else
            for (std::size_t i = 0; i < elements; ++i)
                direction[i] = noise(trial, i) / std::sqrt(static_cast<double>(elements));
        return direction;
    }

    double slope(std::size_t p, const std::vector<double>& direction) {
        constexpr double step = 1e-6; // smaller than the distance of any input to a kink
        auto loss_at = [&](double factor) {
            HostTensor moved = stored_[p];
            std::vector<double> values = moved.values();
            for (std::size_t i = 0; i < values.size(); ++i) values[i] += factor * direction[i];
            moved.set_values(values);
            interpreter_->set_stored(p, moved.storage);
            interpreter_->run(0, forward_);
            return interpreter_->get(loss_)[0];
        };
        const double difference = loss_at(step) - loss_at(-step);
        interpreter_->set_stored(p, stored_[p].storage);
        return difference / (2 * step);
    }

    const Case& one_;
    Graph graph_;
    std::vector<HostTensor> inputs_, stored_;
    std::vector<std::pair<ValueId, std::vector<double>>> constants_;
    ValueId loss_ = ValueId::none;
    std::size_t forward_ = 0;
    std::unique_ptr<Interpreter> interpreter_;
};

bool is_checked(const Case& one) { return !one.differentiable.empty() && all_operators().at(one.op()).gradient; }

void check_all(Look look) {
    const auto device = make_reference_device();
    for (const Case& one : operator_cases()) {
        if (!is_checked(one)) continue;
        SCOPED_TRACE(one.name);
        for (const std::string& wrong : GradientCheck(*device, one, look).run()) ADD_FAILURE() << wrong;
    }
}

TEST(Gradients, AreThoseOfFiniteDifferences) { check_all(Look::dense); }

TEST(Gradients, OfTransposedParametersAreThoseOfFiniteDifferences) { check_all(Look::column_major); }

// The one gradient that is not the derivative: the padding row does not learn.
TEST(Gradients, OfThePaddingRowAreZero) {
    const auto device = make_reference_device();
    Graph graph(all_operators());
    const ValueId table = graph.add_parameter(graph.add_stored("table", {DType::float64, {4, 2}}));
    const ValueId ids = graph.add_input("ids", {DType::int64, {5}});
    const ValueId rows = graph.add("embedding", {table, ids}, {{"padding_row", std::int64_t{2}}});
    const ValueId loss = graph.add("reduce_sum", {rows}, {{"dims", std::vector<std::int64_t>{0, 1}}});
    const Attributes unit = {{"dtype", std::string("float64")}, {"shape", std::vector<std::int64_t>{}}, {"value", 1.0}};
    differentiate(graph, loss, graph.add("fill", {}, unit));
    Interpreter interpreter(graph, *device);
    interpreter.set(ids, {2, 1, 1, 3, 2});
    interpreter.run();
    EXPECT_EQ(interpreter.gradient_of(table), (std::vector<double>{0, 0, 2, 2, 0, 0, 1, 1}));
}

TEST(Gradients, OfEveryOperatorThatHasOneAreChecked) {
    std::set<std::string> missing;
    for (const Operator& op : all_operators().all())
        if (op.gradient) missing.insert(std::string(op.name));
    for (const Case& one : operator_cases())
        if (is_checked(one)) missing.erase(one.op());
    EXPECT_TRUE(missing.empty()) << fmt::format("without a case: {}", fmt::join(missing, ", "));
}

} // namespace
} // namespace tutti::testing

// Traits are true: what an operator declares about itself (graph/traits.h) is held against its loop dims, or against
// what the reference kernels compute. A pass that trusts a wrong trait would change the losses.
#include "backend/reference/reference.h"
#include "graph/loops.h"
#include "operators/operator_cases.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace tutti::testing {

using namespace backend;
using namespace backend::reference;
using namespace ops;
namespace {

using Values = std::vector<double>;
using Loops = std::vector<std::string>; // of a dimension

// A case of an operator, with its loop dims.
struct Bound {
    const Operator* op;
    Attributes attributes;
    std::vector<HostTensor> inputs;
    std::vector<TensorType> input_types, output_types;
    LoopDims dims;

    explicit Bound(const Case& one)
        : op(&all_operators().at(one.op())), attributes(attributes_of(one, DType::float64)),
          inputs(*make_inputs(one, DType::float64)) {
        for (const HostTensor& input : inputs) input_types.push_back(input.type);
        output_types = op->infer(input_types, attributes);
        dims = resolve_loops(*op, input_types, output_types, attributes);
    }

    Loops names(const LoopDims::Dimension& dimension) const {
        Loops all;
        for (int loop : dimension) all.push_back(dims.loops[static_cast<std::size_t>(loop)].name);
        return all;
    }
    Loops first(std::size_t input) const { return names(dims.inputs[input].front()); }
    Loops last(std::size_t input) const { return names(dims.inputs[input].back()); }
    Loops last_of_result() const { return names(dims.outputs[0].back()); }

    const Loop& loop(std::string_view name) const { return dims.loops[number(name)]; }
    bool is_in_results(std::string_view name) const {
        const int wanted = static_cast<int>(number(name));
        return std::ranges::any_of(dims.outputs,
                                   [&](const auto& output) { return LoopDims::dimension_of(output, wanted) >= 0; });
    }

  private:
    std::size_t number(std::string_view name) const {
        const auto found = std::ranges::find(dims.loops, name, &Loop::name);
        if (found == dims.loops.end()) fail("{} has no loop {}", op->name, name);
        return static_cast<std::size_t>(found - dims.loops.begin());
    }
};

// Runs `check` on every case of the operators that have a trait; they have to have cases.
template <class Has, class Check>
void for_cases(Has has, Check check) {
    std::set<std::string_view> unseen;
    for (const Operator& op : all_operators().all())
        if (has(op)) unseen.insert(op.name);
    EXPECT_FALSE(unseen.empty()) << "a trait that no operator has";
    for (const Case& one : operator_cases()) {
        const Operator& op = all_operators().at(one.op());
        if (!has(op)) continue;
        SCOPED_TRACE(one.name);
        unseen.erase(op.name);
        check(Bound(one));
    }
    EXPECT_TRUE(unseen.empty());
}

std::vector<HostTensor> run(const Operator& op, const Attributes& attributes, const std::vector<HostTensor>& inputs) {
    static const auto device = make_reference_device();
    return evaluate(*device, op, attributes, inputs);
}

TEST(Traits, NamesAreThoseOfOperators) {
    for (const Operator& op : all_operators().all()) {
        std::vector<std::string_view> names = {op.gradient_of, op.after_sum, op.without_sum};
        if (op.product)
            names.insert(names.end(), {op.product->input_gradient, op.product->weight_gradient,
                                       op.product->bias_gradient, op.product->with_loss});
        if (op.loss) names.insert(names.end(), {op.loss->part, op.loss->join, op.loss->with_product});
        if (op.norm_gradient)
            names.insert(names.end(), {op.norm_gradient->weight_gradient, op.norm_gradient->both_gradients});
        for (std::string_view name : names)
            EXPECT_TRUE(name.empty() || all_operators().find(name)) << op.name << " names " << name;
    }
}

TEST(Traits, ProductsContractTheirInFeaturesWithTheWeight) {
    for_cases([](const Operator& op) { return op.product.has_value(); },
              [](const Bound& one) {
                  const WeightProduct& product = *one.op->product;
                  const Loops in = {std::string(product.in_features)}, out = {std::string(product.out_features)};
                  EXPECT_EQ(one.last(0), in);
                  EXPECT_EQ(one.first(product.weight), out);
                  EXPECT_EQ(one.last(product.weight), in);
                  EXPECT_EQ(one.last_of_result(), out);
                  EXPECT_FALSE(one.is_in_results(product.in_features));
                  EXPECT_FALSE(one.loop(product.out_features).whole);
                  const bool has_bias = one.inputs.size() > product.bias;
                  EXPECT_EQ(one.loop(product.in_features).whole, has_bias);
                  if (!has_bias) return;
                  EXPECT_EQ(one.first(product.bias), out);
                  EXPECT_EQ(one.inputs.size(), product.bias + 1); // who leaves it out takes the last
              });
}

TEST(Traits, LookupsAddUpOverTheRowsOfTheirTable) {
    for_cases([](const Operator& op) { return op.lookup.has_value(); },
              [](const Bound& one) {
                  const TableLookup& lookup = *one.op->lookup;
                  EXPECT_EQ(one.first(lookup.table), Loops{std::string(lookup.rows)});
                  EXPECT_FALSE(one.is_in_results(lookup.rows));
                  EXPECT_FALSE(one.loop(lookup.rows).whole);
                  EXPECT_FALSE(is_floating(one.input_types[lookup.indices].dtype));
              });
}

TEST(Traits, HeadsAreALoopOfEveryResult) {
    for_cases([](const Operator& op) { return !op.heads.empty(); },
              [](const Bound& one) {
                  EXPECT_FALSE(one.loop(one.op->heads).whole);
                  const auto heads = static_cast<int>(&one.loop(one.op->heads) - one.dims.loops.data());
                  for (const auto& output : one.dims.outputs) EXPECT_GE(LoopDims::dimension_of(output, heads), 0);
              });
}

TEST(Traits, LossesAreOfTheirLastDimension) {
    for_cases([](const Operator& op) { return op.loss.has_value(); },
              [](const Bound& one) {
                  EXPECT_EQ(one.last(0), Loops{std::string(one.op->loss->classes)});
                  EXPECT_FALSE(one.is_in_results(one.op->loss->classes));
                  EXPECT_TRUE(one.output_types[0].shape.empty());
              });
}

TEST(Traits, PiecesAreOfTheWhole) {
    for_cases([](const Operator& op) { return op.pieces.has_value(); },
              [](const Bound& one) {
                  const Pieces& pieces = *one.op->pieces;
                  const auto &wholes = pieces.takes_apart ? one.input_types : one.output_types,
                             &parts = pieces.takes_apart ? one.output_types : one.input_types;
                  ASSERT_EQ(wholes.size(), 1u);
                  const std::int64_t given = one.attributes.integer("dim");
                  const auto dim = static_cast<int>(given < 0 ? given + wholes[0].shape.rank() : given);
                  std::vector<std::int64_t> sizes;
                  for (const TensorType& part : parts) sizes.push_back(part.shape[dim]);
                  const auto sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
                  EXPECT_TRUE(!pieces.cover || sum == wholes[0].shape[dim]) << sum;
                  EXPECT_EQ(one.attributes.has("start"), !pieces.cover);
                  Attributes same = one.attributes;
                  pieces.resize(same, wholes[0].shape[dim], sizes);
                  EXPECT_EQ(same, one.attributes);
              });
}

TEST(Traits, ViewsThatKnowTheWayBackComeBack) {
    for_cases([](const Operator& op) { return op.view_back != nullptr; },
              [](const Bound& one) {
                  const Layout layout = dense_layout(one.input_types[0].shape);
                  const auto there = one.op->view(one.input_types[0], layout, one.attributes);
                  ASSERT_TRUE(there && there->size() == 1);
                  const auto back =
                      one.op->view_back(one.input_types[0].shape, one.output_types[0], there->front(), one.attributes);
                  ASSERT_TRUE(back);
                  EXPECT_EQ(back->offset, layout.offset);
                  const Shape& shape = one.input_types[0].shape;
                  for (int d = 0; d < shape.rank(); ++d) // nobody strides through a dimension of one
                      if (shape[d] > 1) {
                          EXPECT_EQ(back->strides[d], layout.strides[d]) << d;
                      }
              });
}

TEST(Traits, AddendsAreAddedToTheResult) {
    for_cases([](const Operator& op) { return op.addend >= 0; },
              [](const Bound& one) {
                  const auto addend = static_cast<std::size_t>(one.op->addend);
                  if (one.inputs.size() == addend) return;
                  ASSERT_EQ(one.inputs.size(), addend + 1); // it is the last
                  auto without = one.inputs;
                  without.pop_back();
                  Values sum = run(*one.op, one.attributes, without)[0].values();
                  const Values added = one.inputs.back().values();
                  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
                  EXPECT_EQ(difference("sum", run(*one.op, one.attributes, one.inputs)[0].values(), sum, 1e-12), "");
              });
}

TEST(Traits, SumsAndProductsAreThat) {
    for_cases([](const Operator& op) { return op.arithmetic != Arithmetic::none; },
              [](const Bound& one) {
                  if (one.input_types[0] != one.input_types[1]) return; // broadcast
                  const Values a = one.inputs[0].values(), b = one.inputs[1].values(),
                               result = run(*one.op, one.attributes, one.inputs)[0].values();
                  for (std::size_t i = 0; i < result.size(); ++i)
                      EXPECT_EQ(result[i], one.op->arithmetic == Arithmetic::sum ? a[i] + b[i] : a[i] * b[i]);
              });
}

TEST(Traits, OperatorsThatOnlyDropGiveTheirInputWhereNothingDrops) {
    for_cases([](const Operator& op) { return op.only_drops; },
              [](const Bound& one) {
                  Attributes none = one.attributes;
                  none.set(one.op->drops, 0.0);
                  EXPECT_EQ(run(*one.op, none, one.inputs)[0].values(), one.inputs[0].values());
              });
}

TEST(Traits, CopiesHaveTheLoopsOfTheirInput) {
    for_cases([](const Operator& op) { return op.is_copy; },
              [](const Bound& one) { EXPECT_EQ(one.dims.inputs[0], one.dims.outputs[0]); });
}

TEST(Traits, ConstantsHaveOneValue) {
    for_cases([](const Operator& op) { return op.is_constant; },
              [](const Bound& one) {
                  const Values values = run(*one.op, one.attributes, one.inputs)[0].values();
                  EXPECT_EQ(values, Values(values.size(), values.at(0)));
              });
}

// The fused norm's outputs are the sum, then those of the norm of it.
TEST(Traits, NormsOfSumsAreTheNormAfterTheSum) {
    for_cases([](const Operator& op) { return !op.without_sum.empty(); },
              [](const Bound& one) {
                  const Operator& norm = all_operators().at(one.op->without_sum);
                  EXPECT_EQ(norm.after_sum, one.op->name);
                  std::vector<HostTensor> fused = run(*one.op, one.attributes, one.inputs);
                  std::vector<HostTensor> inputs = {fused[0]};
                  inputs.insert(inputs.end(), one.inputs.begin() + 2, one.inputs.end());
                  const std::vector<HostTensor> alone = run(norm, one.attributes, inputs);
                  ASSERT_EQ(fused.size(), alone.size() + 1);
                  for (std::size_t i = 0; i < alone.size(); ++i)
                      EXPECT_EQ(difference("output", fused[i + 1].values(), alone[i].values(), 1e-12), "");
              });
}

TEST(Traits, ScaleIsTheLastInputOfANormsGradient) {
    for_cases([](const Operator& op) { return op.norm_gradient.has_value(); },
              [](const Bound& one) {
                  const std::size_t scale = one.op->norm_gradient->scale;
                  EXPECT_LE(one.inputs.size(), scale + 1);
                  if (one.inputs.size() == scale) return;
                  EXPECT_EQ(one.first(scale), one.last(0));
              });
}

TEST(Traits, GatedKnowsActivationsByTheirGate) {
    const Operator& gated = all_operators().at("gated");
    for_cases([](const Operator& op) { return op.gate != nullptr; },
              [&](const Bound& one) {
                  const HostTensor& x = one.inputs[0];
                  Values expected = run(*one.op, one.attributes, {x})[0].values();
                  const Values up = x.values();
                  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= up[i];
                  const Attributes attributes = {{"activation", one.op->gate(one.attributes)}};
                  EXPECT_EQ(difference("gated", run(gated, attributes, {x, x})[0].values(), expected, 1e-12), "");
              });
}

// A name misspelt would leave a gradient without its forward node, and so without a strategy.
TEST(Traits, GradientsOfOperatorsComeFromThem) {
    std::set<std::string_view> without;
    for (const Operator& op : all_operators().all()) {
        if (op.name.ends_with("_gradient") && op.gradient_of.empty()) without.insert(op.name);
        EXPECT_TRUE(op.name.starts_with(op.gradient_of)) << op.name;
    }
    // That of a bias is of no operator alone; the fused head is loss and gradient in one.
    EXPECT_EQ(without, (std::set<std::string_view>{"bias_gradient", "linear_cross_entropy_gradient"}));
}

} // namespace
} // namespace tutti::testing

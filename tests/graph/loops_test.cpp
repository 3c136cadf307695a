// The notation of loop dims: parsing, binding to sizes, and declarations that contradict themselves.
#include "graph/loops.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

LoopDims resolve(const std::string& text, const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
    Operator op;
    op.name = "test";
    op.loops = [text](Types, const Attributes&) { return text; };
    auto types = [](const std::vector<Shape>& shapes) {
        std::vector<TensorType> result;
        for (const Shape& shape : shapes) result.push_back({DType::float32, shape});
        return result;
    };
    return resolve_loops(op, types(inputs), types(outputs), {});
}

std::string names(const LoopDims& dims) {
    std::string text;
    for (const Loop& loop : dims.loops)
        text += fmt::format("{}{}={}{}", text.empty() ? "" : " ", loop.name, loop.size, loop.whole ? "!" : "");
    return text;
}

TEST(Loops, BindToTheSizesOfTheDimensions) {
    const LoopDims dims = resolve("m k, n k, n -> m n", {{3, 5}, {7, 5}, {7}}, {{3, 7}});
    EXPECT_EQ(names(dims), "m=3 k=5 n=7");
    EXPECT_EQ(dims.inputs[1], (std::vector<LoopDims::Dimension>{{2}, {1}}));
    EXPECT_EQ(dims.outputs[0], (std::vector<LoopDims::Dimension>{{0}, {2}}));
    EXPECT_EQ(LoopDims::dimension_of(dims.inputs[1], 1), 1);
    EXPECT_EQ(LoopDims::dimension_of(dims.outputs[0], 1), -1); // k is reduced
}

TEST(Loops, AStarStandsForAnyNumberOfDimensions) {
    EXPECT_EQ(names(resolve("r* k, n k -> r* n", {{5}, {7, 5}}, {{7}})), "k=5 n=7");
    EXPECT_EQ(names(resolve("r* k, n k -> r* n", {{2, 3, 5}, {7, 5}}, {{2, 3, 7}})), "r0=2 r1=3 k=5 n=7");
    EXPECT_EQ(names(resolve("b* m k -> b* k m", {{2, 3, 5}}, {{2, 5, 3}})), "b0=2 m=3 k=5");
}

TEST(Loops, AnExclamationMarkMakesALoopWholeEverywhere) {
    const LoopDims dims = resolve("r* h!, h -> r* h", {{2, 5}, {5}}, {{2, 5}});
    EXPECT_EQ(names(dims), "r0=2 h=5!");
}

TEST(Loops, ACaretCombinesByMaximum) {
    const LoopDims dims = resolve("b h^ -> b", {{2, 5}}, {{2}});
    EXPECT_EQ(dims.loops[0].combine, Combine::sum);
    EXPECT_EQ(dims.loops[1].combine, Combine::maximum);
}

TEST(Loops, OneBelongsToNoLoop) {
    const LoopDims dims = resolve("b 1, b h -> b h", {{2, 1}, {2, 5}}, {{2, 5}});
    EXPECT_TRUE(dims.inputs[0][1].empty());
}

TEST(Loops, FactorsGetTheirSizesFromTheOtherOperands) {
    const LoopDims split = resolve("b (h d) -> b h d", {{2, 12}}, {{2, 3, 4}});
    EXPECT_EQ(names(split), "b=2 h=3 d=4");
    EXPECT_EQ(split.inputs[0][1], (LoopDims::Dimension{1, 2}));
    EXPECT_EQ(names(resolve("b t (g r!) d, b s g d -> b t (g r!) d", {{2, 5, 6, 8}, {2, 7, 3, 8}}, {{2, 5, 6, 8}})),
              "b=2 t=5 g=3 r=2! d=8 s=7");
}

// Was a bug: b and c each need a size that only the other operand's factors can tell.
TEST(Loops, FactorSizesTravelBackAndForth) {
    EXPECT_EQ(names(resolve("(a b) (c d) -> a (b c) d", {{6, 10}}, {{2, 15, 2}})), "a=2 b=3 c=5 d=2");
    EXPECT_EQ(names(resolve("(a b) (c d) (e f) -> a (b c) (d e) f", {{6, 35, 6}}, {{2, 15, 14, 3}})),
              "a=2 b=3 c=5 d=7 e=2 f=3");
}

TEST(Loops, ScalarsAndOperatorsWithoutInputsHaveNone) {
    EXPECT_EQ(names(resolve("->", {}, {{}})), "");
    EXPECT_EQ(names(resolve("-> t", {}, {{4}})), "t=4");
    EXPECT_EQ(names(resolve("r* v!, r* -> , r*", {{2, 5}, {2}}, {{}, {2}})), "r0=2 v=5!");
    EXPECT_EQ(names(resolve(", n -> n", {{}, {3}}, {{3}})), "n=3");
}

TEST(Loops, AnEmptyDimensionIsALoopOfNone) { EXPECT_EQ(names(resolve("b h -> b h", {{0, 3}}, {{0, 3}})), "b=0 h=3"); }

TEST(Loops, DeclarationsThatContradictThemselvesAreBugs) {
    EXPECT_THROW(resolve("m k -> m k", {{3, 5}}, {{3, 7}}), Bug); // k is 5 and 7
    EXPECT_THROW(resolve("m k -> m", {{3, 5, 2}}, {{3}}), Bug);   // too few dimensions
    EXPECT_THROW(resolve("m -> m", {{3}, {3}}, {{3}}), Bug);      // too few operands
    EXPECT_THROW(resolve("m -> m, m", {{3}}, {{3}}), Bug);        // too many
    EXPECT_THROW(resolve("(a b) -> (a b)", {{6}}, {{6}}), Bug);   // nobody knows a
    EXPECT_THROW(resolve("(a b) -> a b", {{7}}, {{2, 3}}), Bug);  // 2 x 3 is not 7
    EXPECT_THROW(resolve("m ; n -> m", {{3, 4}}, {{3}}), Bug);    // no such notation
}

} // namespace
} // namespace tutti

// What is proved before gradients lie over weights: programs that are changed by hand lose the proof.
#include "program/over_weights.h"

#include "base/error.h"
#include "compile/compile.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {

using namespace compile;
using namespace memory;
using namespace models;
namespace {

// Gradients apart.
Compiled compiled(std::int64_t micro_batches = 1, const char* name = "llama-tiny") {
    Plan plan;
    plan.workload = {.sequence = 16, .global_batch = 2 * micro_batches, .micro_batch = 2};
    plan.precision = {.compute = DType::bfloat16, .gradients = DType::bfloat16};
    plan.chunk_elements = 150'000;
    plan.gradients_over_weights = false;
    Model model = open_model(name).build({2, 16, DType::bfloat16});
    const ValueId loss = model.loss;
    return compile_training(make_training_graph(std::move(model.graph), loss), plan);
}

std::vector<bool> proved(const Compiled& one) {
    std::vector<std::vector<Range>> tensors;
    for (const Chunk& chunk : one.ownership.layout.chunks) {
        tensors.emplace_back();
        for (std::int32_t stored : chunk.tensors) tensors.back().push_back(one.ownership.layout.tensor(stored).range());
    }
    return find_over_weights(one.program, tensors, ops::all_operators());
}

std::vector<Instruction>& instructions(Compiled& one, TaskKind kind) {
    return std::ranges::find(one.program.segments, kind, &Segment::kind)->instructions;
}

// The first instruction that writes a gradient of a matrix, in a chunk for which the proof holds.
std::size_t find_gradient(Compiled& one, const std::vector<bool>& chunks) {
    const auto& backward = instructions(one, TaskKind::backward);
    return static_cast<std::size_t>(
        std::ranges::find_if(backward,
                             [&](const Instruction& instruction) {
                                 return instruction.op == "linear_weight_gradient" &&
                                        chunks[static_cast<std::size_t>(instruction.outputs[0].address.chunk)];
                             }) -
        backward.begin());
}

TEST(OverWeights, AllChunksButTheHeadsFit) {
    Compiled one = compiled();
    const std::vector<bool> chunks = proved(one);
    EXPECT_GE(std::ranges::count(chunks, true), 2);
    const auto& backward = instructions(one, TaskKind::backward);
    const auto head = std::ranges::find(backward, "linear_cross_entropy_gradient", &Instruction::op);
    ASSERT_NE(head, backward.end()); // which reads its weights while it writes their gradients
    EXPECT_FALSE(chunks[static_cast<std::size_t>(head->outputs[2].address.chunk)]);
    EXPECT_EQ(std::ranges::count(proved(compiled(2)), true), 0); // which another forward reads
}

TEST(OverWeights, ReadingWeightsLateSpoilsIt) {
    Compiled one = compiled();
    const std::vector<bool> before = proved(one);
    const std::size_t at = find_gradient(one, before);
    Instruction late = instructions(one, TaskKind::backward)[at];
    const auto chunk = static_cast<std::size_t>(late.outputs[0].address.chunk);
    ASSERT_TRUE(before[chunk]);
    Argument read = late.outputs[0];
    read.address.region = Region::weights;
    read.access = Access::read;
    late.inputs = {read};
    late.outputs = {};
    auto& backward = instructions(one, TaskKind::backward);
    backward.insert(backward.begin() + static_cast<std::ptrdiff_t>(at), late); // before it is written
    EXPECT_EQ(proved(one), before);
    std::swap(backward[at], backward[at + 1]);
    std::vector<bool> expected = before;
    expected[chunk] = false;
    EXPECT_EQ(proved(one), expected);
}

TEST(OverWeights, AnInstructionThatReadsWhatItWritesSpoilsIt) {
    Compiled one = compiled();
    std::vector<bool> expected = proved(one);
    Instruction& gradient = instructions(one, TaskKind::backward)[find_gradient(one, expected)];
    Argument read = gradient.outputs[0];
    read.address.region = Region::weights;
    gradient.inputs.push_back(read);
    expected[static_cast<std::size_t>(read.address.chunk)] = false;
    EXPECT_EQ(proved(one), expected);
}

TEST(OverWeights, AGradientThatIsNotWrittenOrOnlyAddedToSpoilsIt) {
    for (bool added : {false, true}) {
        Compiled one = compiled();
        std::vector<bool> expected = proved(one);
        const std::size_t at = find_gradient(one, expected);
        auto& backward = instructions(one, TaskKind::backward);
        expected[static_cast<std::size_t>(backward[at].outputs[0].address.chunk)] = false;
        if (added)
            backward[at].first_overwrites = false;
        else
            backward.erase(backward.begin() + static_cast<std::ptrdiff_t>(at));
        EXPECT_EQ(proved(one), expected);
    }
}

TEST(OverWeights, AnUpdateThatLeavesSomethingOutSpoilsIt) {
    Compiled one = compiled();
    std::vector<bool> expected = proved(one);
    for (Instruction& update : instructions(one, TaskKind::update)) {
        const auto chunk = static_cast<std::size_t>(update.inputs[0].address.chunk);
        if (!expected[chunk]) continue;
        std::vector<std::int64_t> ranges = update.attributes.integers("ranges");
        --ranges[1];
        update.attributes.set("ranges", ranges);
        expected[chunk] = false;
        break;
    }
    EXPECT_EQ(proved(one), expected);
}

TEST(OverWeights, NothingIsHeldOfGradientsThatLieThere) {
    Compiled one = compiled();
    const std::vector<bool> chunks = proved(one);
    const Bytes apart = chunk_bytes(one.program, Region::gradients);
    put_over_weights(one.program, chunks);
    verify(one.program);
    EXPECT_EQ(chunk_bytes(one.program, Region::gradients) + over_weights_bytes(one.program), apart);
    for (const Segment& segment : one.program.segments)
        for (const Instruction& instruction : segment.instructions)
            for (const auto& arguments : {instruction.inputs, instruction.outputs})
                for (const Argument& argument : arguments)
                    if (argument.address.region == Region::gradients) {
                        EXPECT_FALSE(chunks[static_cast<std::size_t>(argument.address.chunk)]) << instruction.op;
                    }
    for (const Instruction& update : instructions(one, TaskKind::update))
        EXPECT_EQ(update.attributes.flag("restores"), update.inputs[0].address.region == Region::weights);
}

} // namespace
} // namespace tutti

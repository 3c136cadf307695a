#include "compile/compile.h"

#include "base/error.h"
#include "compile/graphs/step_graph.h"
#include "models/model.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tutti {

using namespace compile;
using namespace memory;
using namespace models;
using namespace ops;
namespace {

Plan small_plan(std::int64_t micro_batches, bool split = false) {
    Plan plan;
    plan.workload = {.sequence = 16, .global_batch = 2 * micro_batches, .micro_batch = 2};
    plan.split_backward = split;
    return plan;
}

Graph training_graph(const char* name, const FusionOptions& fusion = {}, DType dtype = DType::float32) {
    Model model = open_model(name).build({2, 16, dtype});
    const ValueId loss = model.loss;
    return make_training_graph(std::move(model.graph), loss, fusion);
}

std::string kinds(const Program& program) {
    std::string text;
    for (const Task& task : program.step) text += fmt::format("{}{} ", name_of(task.kind)[0], task.micro_batch);
    return text;
}

TEST(Compile, TasksOfAStepRunMicroBatchByMicroBatchThenNormAndUpdate) {
    const Graph graph = training_graph("gpt2-tiny");
    EXPECT_EQ(kinds(compile_training(graph, small_plan(2)).program), "l0 l1 f0 b0 f1 b1 n0 u0 ");
    EXPECT_EQ(kinds(compile_training(graph, small_plan(2, true)).program), "l0 l1 f0 b0 w0 f1 b1 w1 n0 u0 ");
}

const Segment& segment_of(const Program& program, TaskKind kind) {
    return *std::ranges::find(program.segments, kind, &Segment::kind);
}

TEST(Compile, WeightGradientsGoStraightToTheGradientChunks) {
    const Program program = compile_training(training_graph("gpt2-tiny", no_fusion), small_plan(1)).program;
    int direct = 0;
    for (const Instruction& instruction : segment_of(program, TaskKind::backward).instructions) {
        EXPECT_NE(instruction.op, "accumulate") << instruction.source;
        if (instruction.op != "linear_weight_gradient") continue;
        EXPECT_EQ(instruction.outputs[0].address.region, Region::gradients);
        ++direct;
    }
    EXPECT_EQ(direct, 4 * 4 + 1); // four matrices a layer, and the head
}

// Gradients that are kept narrower than they are computed are rounded by the kernels that write them.
TEST(Compile, NarrowGradientsGoStraightToTheGradientChunks) {
    Plan plan = small_plan(2);
    plan.precision = {.compute = DType::bfloat16, .gradients = DType::bfloat16};
    for (const FusionOptions& fusion : {FusionOptions{}, no_fusion}) {
        const Graph graph = training_graph("gpt2-tiny", fusion, DType::bfloat16);
        const Program program = compile_training(graph, plan).program;
        int direct = 0;
        for (const Instruction& instruction : segment_of(program, TaskKind::backward).instructions) {
            EXPECT_TRUE(instruction.op != "accumulate" || instruction.outputs[0].address.region == Region::results);
            for (const Argument& output : instruction.outputs) {
                if (output.address.region != Region::gradients) continue;
                EXPECT_EQ(output.type.dtype, DType::bfloat16);
                ++direct;
            }
        }
        EXPECT_EQ(direct, 4 * 12 + 2 + 3); // twelve a layer, the last norm's, and what is embedded twice, and positions
    }
}

// Only what the operator can add into goes there; the rest of its outputs, and the loss, are buffers like all others.
TEST(Compile, FusedNodesWriteSomeOfTheirOutputsStraightToTheGradientChunks) {
    const Program program = compile_training(training_graph("gpt2-tiny"), small_plan(2)).program;
    const std::map<std::string, std::size_t> from = {
        {"layer_norm_gradient", 1}, {"linear_cross_entropy_gradient", 2}, {"linear_weight_gradient", 0}};
    std::map<std::string, int> found;
    for (const Instruction& instruction : segment_of(program, TaskKind::backward).instructions) {
        EXPECT_TRUE(instruction.op != "accumulate" || instruction.outputs[0].address.region == Region::results);
        if (!from.contains(instruction.op)) continue;
        ++found[instruction.op];
        EXPECT_TRUE(instruction.first_overwrites);
        for (std::size_t o = 0; o < instruction.outputs.size(); ++o) {
            const bool direct = o >= from.at(instruction.op);
            EXPECT_EQ(instruction.outputs[o].access, direct ? Access::accumulate : Access::write);
            EXPECT_EQ(instruction.outputs[o].address.region == Region::gradients, direct);
        }
    }
    EXPECT_EQ(found,
              (std::map<std::string, int>{
                  {"layer_norm_gradient", 9}, {"linear_cross_entropy_gradient", 1}, {"linear_weight_gradient", 16}}));
}

// A kernel adds into all of its outputs or into none. Here the bias is written before, the scale is not.
TEST(Compile, ANodeWhoseTiesAreOfTwoKindsWritesBuffersInstead) {
    Graph graph(all_operators());
    const ValueId x = graph.add_input("x", {DType::float32, {3, 8}});
    auto parameter = [&](const char* name) {
        return graph.add_parameter(graph.add_stored(name, {DType::float32, {8}}));
    };
    const ValueId scale = parameter("scale"), shift = parameter("shift");
    const ValueId y = graph.add("layer_norm", {x, scale, shift}, {{"eps", 1e-5}}, "norm");
    const ValueId z = graph.add("multiply", {graph.add("add", {y, shift}, {}, "add"), y}, {}, "square");
    const ValueId loss = graph.add("reduce_sum", {z}, {{"dims", std::vector<std::int64_t>{0, 1}}}, "loss");
    graph.add_output({"loss", loss, ValueId::none});
    const Program program = compile_training(make_training_graph(graph, loss), small_plan(1)).program;
    const auto& backward = segment_of(program, TaskKind::backward).instructions;
    const auto norm = std::ranges::find(backward, "layer_norm_weight_gradient", &Instruction::op);
    ASSERT_NE(norm, backward.end());
    for (const Argument& output : norm->outputs) EXPECT_NE(output.address.region, Region::gradients);
    EXPECT_EQ(std::ranges::count(backward, "accumulate", &Instruction::op), 3);
}

TEST(Compile, OfTiedContributionsOnlyTheFirstOverwrites) {
    const Compiled compiled = compile_training(training_graph("gpt2-tiny"), small_plan(1));
    std::vector<bool> overwrites; // into the tied embedding, in order
    for (const Instruction& instruction : segment_of(compiled.program, TaskKind::backward).instructions)
        if (instruction.outputs.back().address.region == Region::gradients &&
            (instruction.source.ends_with("wte") || instruction.source.ends_with("lm_head")))
            overwrites.push_back(instruction.first_overwrites);
    EXPECT_EQ(overwrites, (std::vector<bool>{true, false}));
}

TEST(Compile, TheGradientOfTheLogitsIsWrittenOverThem) {
    const Program program = compile_training(training_graph("llama-tiny", no_fusion), small_plan(1)).program;
    const auto& backward = segment_of(program, TaskKind::backward).instructions;
    const auto loss = std::ranges::find(backward, "cross_entropy_gradient", &Instruction::op);
    ASSERT_NE(loss, backward.end());
    EXPECT_EQ(loss->inputs[1].address, loss->outputs[0].address);
    EXPECT_EQ(loss->outputs[0].address.region, Region::stash);
}

// The fused projection's gradient is made of three that attention's gradient makes: they are written where it lies.
TEST(Compile, PartsOfAConcatenationAreWrittenWhereItLies) {
    const Program program = compile_training(training_graph("gpt2-tiny"), small_plan(1)).program;
    const auto& backward = segment_of(program, TaskKind::backward).instructions;
    EXPECT_EQ(std::ranges::count(backward, "concat", &Instruction::op), 0);
    for (std::size_t i = 0; i < backward.size(); ++i) {
        if (backward[i].op != "attention_gradient") continue;
        const auto reader = std::ranges::find(backward.begin() + static_cast<std::ptrdiff_t>(i), backward.end(),
                                              "linear_input_gradient", &Instruction::op);
        ASSERT_NE(reader, backward.end());
        const Argument& whole = reader->inputs[0];
        const std::int64_t width = whole.type.shape.back();
        for (std::int64_t part = 0; part < 3; ++part) {
            const Argument& output = backward[i].outputs[static_cast<std::size_t>(part)];
            EXPECT_EQ(output.address.offset, whole.address.offset + part * width / 3 * 4);
            EXPECT_EQ(output.strides[1], width);
        }
    }
}

// Queries, keys and values are one matmul, gate and up another; what their gradients are made of is written together.
TEST(Compile, MergedProductsHaveOneGradientEach) {
    for (bool split : {false, true}) {
        const Graph graph = training_graph("llama-tiny", {.norm_weights = !split});
        const Compiled compiled = compile_training(graph, small_plan(2, split));
        const auto& backward = segment_of(compiled.program, TaskKind::backward).instructions;
        EXPECT_EQ(std::ranges::count(backward, "concat", &Instruction::op), 0);
        EXPECT_EQ(std::ranges::count(backward, "linear_input_gradient", &Instruction::op), 4 * 4);
        int direct = 0;
        for (const Instruction& instruction :
             segment_of(compiled.program, split ? TaskKind::weight_gradient : TaskKind::backward).instructions)
            if (instruction.op == "linear_weight_gradient")
                direct += instruction.outputs[0].address.region == Region::gradients;
        EXPECT_EQ(direct, 4 * 4);
        for (const ChunkTensor& tensor : compiled.ownership.layout.tensors) EXPECT_TRUE(tensor.trained);
    }
}

// So the plain ones are not kept for the backward beside them.
TEST(Compile, RotatedQueriesAndKeysTakeThePlaceOfThePlainOnes) {
    const Program program = compile_training(training_graph("llama-tiny"), small_plan(1)).program;
    const auto& forward = segment_of(program, TaskKind::forward).instructions;
    int rotated = 0, attentions = 0;
    for (const Instruction& instruction : forward) {
        if (instruction.op == "attention") {
            EXPECT_EQ(instruction.inputs[0].strides[1], 128 + 64 + 64);
            ++attentions;
        }
        if (instruction.op != "rotary") continue;
        EXPECT_EQ(instruction.inputs[0].address, instruction.outputs[0].address);
        EXPECT_EQ(instruction.inputs[0].strides, instruction.outputs[0].strides);
        EXPECT_EQ(instruction.outputs[0].address.region, Region::stash);
        ++rotated;
    }
    EXPECT_EQ(attentions, 4);
    EXPECT_EQ(rotated, 2 * 4);
}

class Joining : public testing::Test {
  protected:
    Graph graph{all_operators()};
    ValueId relu() { return graph.add("relu", {graph.add_input("x", {DType::float32, {2, 3, 4}})}, {}, "relu"); }
    ValueId turned(ValueId value) {
        return graph.add("transpose", {value}, {{"permutation", std::vector<std::int64_t>{1, 0, 2}}}, "turn");
    }
    ValueId flat(ValueId value) {
        return graph.add("reshape", {value}, {{"shape", std::vector<std::int64_t>{2, 12}}}, "flat");
    }
    ValueId joined(std::vector<ValueId> parts, std::int64_t dim) {
        const ValueId whole = graph.add("concat", std::move(parts), {{"dim", dim}}, "concat");
        graph.add_output({"y", whole, ValueId::none});
        return whole;
    }
    std::vector<Instruction> compiled() const {
        return segment_of(compile_forward(graph, small_plan(1), {}), TaskKind::forward).instructions;
    }
};

TEST_F(Joining, GoesThroughViews) {
    joined({flat(relu()), flat(relu())}, 1);
    const auto instructions = compiled();
    ASSERT_EQ(instructions.size(), 2u);
    EXPECT_EQ(instructions[1].outputs[0].address.offset, 12 * 4);
    EXPECT_EQ(instructions[1].outputs[0].strides, (Shape{24, 4, 1}));
}

TEST_F(Joining, GoesThroughTurnedViewsAndNegativeDimensions) {
    joined({turned(relu()), turned(relu())}, -2);
    const auto instructions = compiled();
    ASSERT_EQ(instructions.size(), 2u);
    EXPECT_EQ(instructions[1].outputs[0].address.offset, 2 * 4 * 4);
    EXPECT_EQ(instructions[1].outputs[0].strides, (Shape{4, 16, 1}));
}

TEST_F(Joining, LeavesPartsAloneThatHaveOtherUses) {
    const ValueId part = relu();
    joined({relu(), part}, 2);
    graph.add_output({"part", part, ValueId::none});
    EXPECT_EQ(compiled().size(), 3u);
}

TEST_F(Joining, LeavesAPartAloneThatIsJoinedTwice) {
    const ValueId part = relu();
    joined({part, part}, 2);
    EXPECT_EQ(compiled().size(), 2u);
}

TEST_F(Joining, LeavesPartsAloneWhoseKernelsWriteDenseResultsOnly) {
    joined({relu(), graph.add("softmax", {relu()}, {}, "softmax")}, 2);
    EXPECT_EQ(compiled().back().op, "concat");
}

TEST_F(Joining, LeavesPartsAloneThatWouldNotHaveContiguousRows) {
    const ValueId last =
        graph.add("transpose", {relu()}, {{"permutation", std::vector<std::int64_t>{0, 2, 1}}}, "turn");
    joined({last, graph.add("contiguous", {last}, {}, "copy")}, 2);
    EXPECT_EQ(compiled().back().op, "concat");
}

class Rewriting : public Joining {
  protected:
    // Two halves of what a kernel makes.
    std::vector<ValueId> halves() {
        const ValueId all = graph.add("softmax", {graph.add_input("x", {DType::float32, {2, 3, 8}})}, {}, "all");
        return graph
            .node(graph.add_node("split", {all}, {{"dim", std::int64_t{2}}, {"sizes", std::vector<std::int64_t>{4, 4}}},
                                 "split"))
            .outputs;
    }
    bool in_place(const Instruction& instruction) const {
        return instruction.inputs[0].address == instruction.outputs[0].address;
    }
};

TEST_F(Rewriting, APartWithOneReaderIsWrittenOver) {
    const std::vector<ValueId> parts = halves();
    const ValueId y = graph.add("relu", {parts[1]}, {}, "relu");
    graph.add_output({"y", graph.add("add", {y, parts[0]}, {}, "add"), ValueId::none});
    const auto instructions = compiled();
    EXPECT_TRUE(in_place(instructions[1]));
    EXPECT_EQ(instructions[1].outputs[0].strides, (Shape{24, 8, 1}));
    EXPECT_EQ(instructions[2].inputs[0].address, instructions[1].outputs[0].address);
    EXPECT_FALSE(in_place(instructions[2]));
}

TEST_F(Rewriting, APartThatIsReadAgainIsNot) {
    const std::vector<ValueId> parts = halves();
    const ValueId y = graph.add("relu", {parts[1]}, {}, "relu");
    graph.add_output({"y", graph.add("add", {y, parts[1]}, {}, "add"), ValueId::none});
    EXPECT_FALSE(in_place(compiled()[1]));
}

TEST_F(Rewriting, NorIsOneWhoseResultIsWantedDense) {
    const std::vector<ValueId> parts = halves();
    const ValueId returned = graph.add("relu", {parts[0]}, {}, "relu"),
                  viewed = graph.add("relu", {parts[1]}, {}, "relu");
    graph.add_output({"y", returned, ValueId::none});
    graph.add_output({"z", graph.add("negate", {flat(viewed)}, {}, "negate"), ValueId::none});
    const auto instructions = compiled();
    EXPECT_FALSE(in_place(instructions[1]));
    EXPECT_FALSE(in_place(instructions[2]));
}

TEST(Compile, SplittingTheBackwardKeepsMoreForLater) {
    const Graph graph = training_graph("gpt2-tiny", {.norm_weights = false});
    const Program fused = compile_training(graph, small_plan(1)).program;
    const Program split = compile_training(graph, small_plan(1, true)).program;
    EXPECT_EQ(slot_bytes(fused, Region::deferred), Bytes{});
    EXPECT_GT(slot_bytes(split, Region::deferred), Bytes{});
    EXPECT_TRUE(
        std::ranges::all_of(segment_of(split, TaskKind::weight_gradient).instructions,
                            [](const Instruction& i) { return i.outputs[0].address.region == Region::gradients; }));
}

TEST(Compile, AForwardProgramHoldsNeitherGradientsNorAStash) {
    Model model = open_model("gpt2-tiny").build({2, 16, DType::float32});
    const Compiled training = compile_training(training_graph("gpt2-tiny"), small_plan(1));
    const Program forward = compile_forward(make_forward_graph(model.graph), small_plan(1), training.ownership);
    EXPECT_EQ(kinds(forward), "l0 f0 ");
    EXPECT_EQ(chunk_bytes(forward, Region::gradients), Bytes{});
    EXPECT_EQ(slot_bytes(forward, Region::stash), Bytes{});
    EXPECT_LT(forward.sizes[static_cast<std::size_t>(Region::transient)], slot_bytes(training.program, Region::stash));
}

TEST(Compile, BatchesThatDoNotDivideAreRefusedWithTheNumbers) {
    Plan plan = small_plan(1);
    plan.workload.global_batch = 3;
    try {
        compile_training(training_graph("gpt2-tiny"), plan);
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "global_batch 3 is not a multiple of micro_batch 2: 2 or 4 would be");
    }
}

// The verifier must catch what a wrong compiler would do.
class ProgramVerifier : public testing::Test {
  protected:
    Program program = compile_training(training_graph("llama-tiny"), small_plan(2)).program;
    Segment& backward() { return *std::ranges::find(program.segments, TaskKind::backward, &Segment::kind); }
    Segment& forward() { return *std::ranges::find(program.segments, TaskKind::forward, &Segment::kind); }
};

TEST_F(ProgramVerifier, PassesWhatTheCompilerMakes) { EXPECT_NO_THROW(verify(program)); }

TEST_F(ProgramVerifier, SeesAMissingInstruction) {
    auto& instructions = forward().instructions;
    instructions.erase(std::ranges::find(instructions, "linear", &Instruction::op));
    EXPECT_THROW(verify(program), Bug);
}

TEST_F(ProgramVerifier, SeesABackwardBeforeItsForward) {
    std::swap(program.step[2], program.step[3]); // after both loads
    EXPECT_THROW(verify(program), Bug);
}

TEST_F(ProgramVerifier, SeesAGradientThatIsAccumulatedBeforeItIsWritten) {
    for (Instruction& instruction : backward().instructions) instruction.first_overwrites = false;
    EXPECT_THROW(verify(program), Bug);
}

TEST_F(ProgramVerifier, SeesAnAddressOutsideItsRegion) {
    forward().instructions[2].outputs[0].address.offset += std::int64_t{1} << 40;
    EXPECT_THROW(verify(program), Bug);
}

TEST_F(ProgramVerifier, SeesATaskThatWaitsForALaterOne) {
    program.step[1].waits.push_back(3);
    EXPECT_THROW(verify(program), Bug);
}

TEST(Plan, ItsFileGivesItBack) {
    Plan plan = small_plan(3, true);
    plan.model = "GPT2LMHeadModel";
    plan.precision.compute = DType::bfloat16;
    plan.precision.moments = DType::bfloat16;
    EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
    EXPECT_THROW(parse_plan("{}", "plan.json"), Error);
    EXPECT_THROW(parse_plan("{\"tutti_plan\": 99}", "plan.json"), Error);
}

TEST(Plan, TheFirstVersionIsStillRead) {
    Plan plan = small_plan(3, true);
    plan.precision.compute = DType::bfloat16;
    plan.chunk_elements = 16777216; // the default of that time
    const std::string first = R"({"tutti_plan": 1, "model": "", "device": "cpu",
        "workload": {"sequence": 16, "global_batch": 6, "micro_batch": 2},
        "precision": {"compute": "bf16", "states": "float32"}, "chunk_elements": 16777216, "split_backward": true})";
    EXPECT_EQ(parse_plan(first, "plan.json"), plan);
}

TEST(Plan, PrecisionsThatDoNotFitTogetherAreRefused) {
    Plan plan = small_plan(1);
    plan.precision.master = DType::bfloat16;
    EXPECT_THROW(check(plan), Error);
    plan.precision.compute = DType::bfloat16;
    EXPECT_NO_THROW(check(plan));
    plan.precision.gradients = DType::bfloat16;
    EXPECT_NO_THROW(check(plan));
    plan.precision.gradients = DType::float16;
    EXPECT_THROW(check(plan), Error);
    plan.precision = {.gradients = DType::bfloat16};
    EXPECT_THROW(check(plan), Error);
    plan.precision = {DType::float64, DType::float64, DType::float64, DType::bfloat16};
    EXPECT_THROW(check(plan), Error);
}

// Nothing is drawn where nothing is rounded stochastically.
TEST(Compile, TheUpdateDrawsByNameWhereItRoundsStochastically) {
    const Graph graph = training_graph("gpt2-tiny");
    Plan plan = small_plan(1);
    auto update = [&] { return segment_of(compile_training(graph, plan).program, TaskKind::update).instructions[0]; };
    EXPECT_FALSE(update().attributes.has("streams"));
    plan.precision.moments = DType::bfloat16;
    const Instruction drawn = update();
    EXPECT_EQ(drawn.attributes.integers("streams").size() * 3, drawn.attributes.integers("ranges").size());
    EXPECT_EQ(drawn.outputs[1].type.dtype, DType::bfloat16);
    EXPECT_EQ(drawn.outputs[0].type.dtype, DType::float32);
}

} // namespace
} // namespace tutti

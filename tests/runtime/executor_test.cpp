#include "runtime/executor.h"

#include "backend/reference/reference.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

Argument number_at(Region region, std::int64_t offset, Access access) {
    return {.address = {region, 0, offset}, .type = {DType::float64, {1}}, .strides = {1}, .access = access};
}

Instruction fill(double value, Argument into) {
    return {
        .op = "fill",
        .attributes = {{"dtype", std::string("float64")}, {"shape", std::vector<std::int64_t>{1}}, {"value", value}},
        .outputs = {std::move(into)}};
}

Instruction accumulate(Argument value, Argument into) {
    return {.op = "accumulate",
            .attributes = {{"dtype", std::string("float64")}},
            .inputs = {std::move(value)},
            .outputs = {std::move(into)},
            .first_overwrites = true};
}

Segment message(TaskKind kind) {
    const bool sends = kind == TaskKind::send;
    Segment segment{.kind = kind};
    Instruction one = communication_of(sends ? InstructionKind::send : InstructionKind::receive, 0, {}, 0);
    if (sends)
        one.inputs.push_back(number_at(Region::transient, 0, Access::read));
    else
        one.outputs.push_back(number_at(Region::results, 0, Access::write));
    segment.instructions = {one};
    return segment;
}

struct BoundProgram {
    explicit BoundProgram(Program given) : program(std::move(given)) { executor.bind(data, scratch->data()); }
    double result(std::int64_t offset) const {
        return *reinterpret_cast<const double*>(executor.address({Region::results, 0, offset}));
    }

    Program program;
    std::unique_ptr<backend::Device> device = backend::reference::make_reference_device();
    std::unique_ptr<comm::World> world = comm::make_single_world();
    GroupTable groups{*world};
    Executor executor{program, *device, groups};
    offload::ModelData data{*device, program, {}, nullptr};
    std::unique_ptr<backend::Arena> scratch = device->allocate(executor.scratch());
};

Program with_results() {
    Program program;
    program.sizes[static_cast<std::size_t>(Region::transient)] = {16};
    program.sizes[static_cast<std::size_t>(Region::results)] = {16};
    return program;
}

const Executor::Load no_batches = [](std::int32_t, std::span<std::byte* const>) {};

// The first micro-batch overwrites what the step before has left, the others add to it.
TEST(Executor, SumsOverTheMicroBatchesOfEachStep) {
    Program program = with_results();
    Segment segment;
    segment.instructions = {
        fill(3, number_at(Region::transient, 0, Access::write)),
        accumulate(number_at(Region::transient, 0, Access::read), number_at(Region::results, 0, Access::accumulate))};
    program.segments = {segment};
    for (std::int32_t i = 0; i < 4; ++i)
        program.step.push_back({.micro_batch = i, .segment = 0, .first = i == 0, .last = i == 3});
    BoundProgram run(std::move(program));
    for (int step = 0; step < 3; ++step) {
        run.executor.step({}, no_batches);
        EXPECT_EQ(run.result(0), 12);
    }
}

TEST(Executor, CopiesValuesBetweenTheStagesOfARank) {
    Program program = with_results();
    Segment makes;
    makes.instructions = {fill(5, number_at(Region::transient, 0, Access::write))};
    program.segments = {makes, message(TaskKind::send), message(TaskKind::receive)};
    program.step = {{.segment = 0}, {.kind = TaskKind::send, .segment = 1}, {.kind = TaskKind::receive, .segment = 2}};
    program.groups = {{"pipe", {0}, 0}};
    BoundProgram run(std::move(program));
    run.executor.step({}, no_batches);
    EXPECT_EQ(run.result(0), 5);
}

// Those who look on see each task before and after, and each instruction that the task runs.
TEST(Executor, ShowsTasksAndInstructionsInTheirOrder) {
    Program program = with_results();
    Segment segment;
    segment.instructions = {fill(1, number_at(Region::results, 0, Access::write)),
                            fill(2, number_at(Region::results, 8, Access::write))};
    segment.instructions[1].only_last = true;
    program.segments = {segment};
    program.step = {{.segment = 0, .last = false}, {.micro_batch = 1, .segment = 0}};
    BoundProgram run(std::move(program));
    std::string seen;
    run.executor.step(
        {}, no_batches,
        [&](const Task& task, bool done) { seen += fmt::format("{}{}", done ? ")" : "(", task.micro_batch); },
        [&](const Task&, const Instruction& one) { seen += fmt::format(" {} ", one.attributes.real("value")); });
    EXPECT_EQ(seen, "(0 1 )0(1 1  2 )1");
}

} // namespace
} // namespace tutti

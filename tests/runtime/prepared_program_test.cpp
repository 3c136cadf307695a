#include "runtime/prepared_program.h"

#include "backend/reference/reference.h"
#include "base/error.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace runtime;
namespace {

Argument one_number(Region region) {
    return {.address = {region, 0, 0}, .type = {DType::float64, {1}}, .strides = {1}, .access = Access::read};
}

struct Prepared {
    std::unique_ptr<backend::Device> device = backend::reference::make_reference_device();
    std::unique_ptr<comm::World> world = comm::make_single_world();
    GroupTable groups{*world};
    Program program;

    explicit Prepared(std::vector<Instruction> instructions) {
        program.groups = {{"pipe", {0}, 0}};
        program.segments.emplace_back().instructions = std::move(instructions);
    }
    PreparedProgram prepare(bool with_host = false) {
        return prepare_program(program,
                               {.device = *device, .host = with_host ? device.get() : nullptr, .groups = groups});
    }
};

Instruction adds_up(bool first_overwrites) {
    Instruction add{.op = "accumulate", .attributes = {{"dtype", std::string("float64")}}};
    add.inputs = {one_number(Region::transient)};
    add.outputs = {one_number(Region::results)};
    add.outputs[0].access = Access::accumulate;
    add.first_overwrites = first_overwrites;
    return add;
}

Instruction sum_over_ranks() {
    Instruction sum = communication_of(InstructionKind::all_reduce, 0);
    sum.inputs = sum.outputs = {one_number(Region::transient)};
    return sum;
}

TEST(PreparedProgram, HasAKernelForEachWayAnInstructionRuns) {
    Instruction copy{.op = "contiguous", .inputs = {one_number(Region::transient)}};
    copy.outputs = {one_number(Region::results)};
    Prepared all({copy, adds_up(false), adds_up(true)});
    const PreparedProgram prepared = all.prepare();
    const std::vector<PreparedInstruction>& made = prepared.segments[0].instructions;
    ASSERT_EQ(made.size(), 3U);
    EXPECT_TRUE(made[0].write && !made[0].accumulate);
    EXPECT_TRUE(!made[1].write && made[1].accumulate);
    EXPECT_TRUE(made[2].write && made[2].accumulate);
    for (const PreparedInstruction& one : made) EXPECT_EQ(one.kind, WorkKind::device_kernel);
}

// Messages to this rank itself need no group: a copy is enough.
TEST(PreparedProgram, TellsMessagesWithinARankFromCommunication) {
    Instruction send = communication_of(InstructionKind::send, 0, {}, 0);
    send.inputs = {one_number(Region::transient)};
    Instruction receive = communication_of(InstructionKind::receive, 0, {}, 0);
    receive.outputs = {one_number(Region::transient)};
    Prepared all({send, receive, sum_over_ranks()});
    const PreparedProgram prepared = all.prepare();
    const std::vector<PreparedInstruction>& made = prepared.segments[0].instructions;
    EXPECT_EQ(made[0].kind, WorkKind::local_send);
    EXPECT_EQ(made[1].kind, WorkKind::local_receive);
    EXPECT_TRUE(made[1].write);
    EXPECT_EQ(made[2].kind, WorkKind::communication);
}

TEST(PreparedProgram, RefusesHostWorkWithoutAHost) {
    Instruction on_host = adds_up(true);
    on_host.lane = Lane::host;
    Prepared one({on_host});
    EXPECT_THROW(one.prepare(), Bug);
    EXPECT_EQ(one.prepare(true).segments[0].instructions[0].kind, WorkKind::host_kernel);
}

// As many as are under way at once, and no more.
TEST(CommunicationPool, GivesTheSameOneAgainWhenItIsFree) {
    const Instruction sum = sum_over_ranks();
    Prepared all({sum});
    const auto queue = all.device->make_queue();
    CommunicationPool pool(all.world->all(), nullptr);
    double number = 1;
    const std::byte* in = reinterpret_cast<std::byte*>(&number);
    std::byte* out = reinterpret_cast<std::byte*>(&number);
    Communication& first = pool.free_one(sum, *all.device, Route::host);
    EXPECT_EQ(&pool.free_one(sum, *all.device, Route::host), &first);
    first.start({&in, 1}, {&out, 1}, *queue);
    Communication& second = pool.free_one(sum, *all.device, Route::host);
    EXPECT_NE(&second, &first);
    first.finish();
    EXPECT_EQ(&pool.free_one(sum, *all.device, Route::host), &first);
}

} // namespace
} // namespace tutti

#include "simulate/uneven.h"

#include "schedule/evaluate.h"
#include "schedule/families.h"
#include "schedule/lower.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace tutti {

using namespace costs;
using namespace schedule;
using namespace simulate;
namespace {

using Kind = OutlineAction::Kind;

const KernelSpeed kernels{.flops = 1000, .bytes = 100, .launch = 0.5};
const LinkSpeed link{.latency = 0.25, .bytes = 16, .reduced_bytes = 8, .gathered_bytes = 16};
const OperatorSet no_operators({});

Argument vector_of(std::int64_t elements, Region region = Region::transient) {
    return {{region, 0, 0}, {DType::float32, {elements}}, {1}, Access::read};
}

Instruction communication(InstructionKind kind, std::int64_t elements, int group, int peer = -1) {
    Instruction one = communication_of(kind, group, {}, peer);
    one.inputs.push_back(vector_of(elements));
    return one;
}

Outline outline(const Program& program, int rank) { return outline_of(program, rank, no_operators, {}, kernels, link); }

TEST(Outline, KernelsTakeTheSlowerOfComputingAndMoving) {
    const OperatorSet operators(
        {{.name = "heavy",
          .cost = [](Types, Types, const Attributes&) { return Cost{.flops = {4000}, .bytes = {10}}; }},
         {.name = "light",
          .cost = [](Types, Types, const Attributes&) { return Cost{.flops = {10}, .bytes = {200}}; }}});
    EXPECT_EQ(kernel_seconds({.op = "heavy"}, operators, kernels), 4.5);
    EXPECT_EQ(kernel_seconds({.op = "light"}, operators, kernels), 2.5);
    Instruction unknown{.op = "adamw", .kind = InstructionKind::update};
    unknown.inputs = {vector_of(25)};
    EXPECT_EQ(kernel_seconds(unknown, operators, kernels), 1.5); // its operands
}

TEST(Outline, KernelsThatWereTimedTakeThatTime) {
    Instruction adds{.op = "kernel"}, other{.op = "other"};
    adds.outputs = {vector_of(25, Region::gradients)}; // 1.5 seconds by its operands
    adds.outputs[0].access = Access::accumulate;
    adds.first_overwrites = true;
    other.inputs = {vector_of(50)}; // 2.5
    Program program;
    program.segments = {{.kind = TaskKind::backward, .instructions = {adds, other}}};
    program.step = {{.kind = TaskKind::backward, .segment = 0, .first = true},
                    {.kind = TaskKind::backward, .segment = 0, .first = false}};
    const KernelTimes times{{{kernel_key(adds, true), 7}}};
    const Outline made = outline_of(program, 0, no_operators, times, kernels, link);
    ASSERT_EQ(made.tasks.size(), 2u);
    EXPECT_EQ(made.tasks[0].actions[0].seconds, 1.5 + 2.5); // overwriting was not timed
    EXPECT_EQ(made.tasks[1].actions[0].seconds, 7 + 2.5);
}

TEST(Outline, CollectivesTakeWhatTheirMessagesDo) {
    EXPECT_EQ(communication_seconds(communication(InstructionKind::send, 8, 0, 1), 4, link), 0.25 + 2);
    EXPECT_EQ(communication_seconds(communication(InstructionKind::all_reduce, 8, 0), 4, link),
              0.25 + 3 * 2); // small: everything to all
    EXPECT_EQ(communication_seconds(communication(InstructionKind::all_reduce, 4096, 0), 4, link),
              2 * 0.25 + 0.75 * 16384 * (1. / 8 + 1. / 16));
    EXPECT_EQ(communication_seconds(communication(InstructionKind::reduce_scatter, 4096, 0), 4, link),
              0.25 + 0.75 * 2048);
    EXPECT_EQ(communication_seconds(communication(InstructionKind::gather_chunk, 4096, 0), 4, link),
              0.25 + 0.75 * 1024);
}

// Forward on rank 0, a message, forward on rank 1; then a sum of both whose waiting a second task pays for.
Program two_ranks(int rank) {
    Program program;
    program.groups = {{"pipe", {0, 1}, 2}, {"world", {0, 1}, 0}};
    Instruction kernel{.op = "kernel"};
    kernel.inputs = {vector_of(rank == 0 ? 25 : 50)}; // 1.5 and 2.5 seconds
    Instruction detached = communication(InstructionKind::all_reduce, 8, 1);
    detached.only_last = true;
    detached.inputs[0].address.region = Region::gradients;
    Segment forward{.kind = TaskKind::forward, .instructions = {kernel, detached}};
    Segment message{
        .kind = rank == 0 ? TaskKind::send : TaskKind::receive,
        .instructions = {communication(rank == 0 ? InstructionKind::send : InstructionKind::receive, 8, 0, 1 - rank)}};
    Segment norm{.kind = TaskKind::norm, .instructions = {kernel}};
    program.segments = {forward, message, norm};
    const Task compute{.kind = TaskKind::forward, .segment = 0};
    const Task other{.kind = message.kind, .segment = 1, .peer = 1 - rank};
    if (rank == 0) {
        program.step = {compute, other};
    } else {
        program.step = {other, compute};
        program.step[1].waits = {0};
    }
    program.step.push_back({.kind = TaskKind::norm, .segment = 2});
    return program;
}

TEST(RankSimulation, FollowsMessagesAndDetachedSumsAsWorkedOutByHand) {
    const std::vector<Outline> outlines = {outline(two_ranks(0), 0), parse_outline(to_text(outline(two_ranks(1), 1)))};
    const auto simulated = simulate::simulate(outlines);
    // Rank 0 computes until 1.5 and posts the message, there since 0 on the other side: it takes 2.25.
    EXPECT_EQ(simulated[0].tasks[0].end, 1.5);
    EXPECT_EQ(simulated[1].tasks[1].start, 3.75);
    EXPECT_EQ(simulated[1].tasks[1].end, 6.25);
    ASSERT_EQ(simulated[1].waits.size(), 2u);
    EXPECT_EQ(simulated[1].waits[0].start, 0);
    EXPECT_EQ(simulated[1].waits[0].end, 3.75);
    EXPECT_EQ(simulated[1].waits[0].task, 1);
    // The sum begins when rank 1 comes to it, at 6.25, and takes 0.25 + 2; both norms wait for it.
    for (const SimulatedRank& rank : simulated) EXPECT_EQ(rank.tasks[2].start, 8.5);
    EXPECT_EQ(simulated[0].communications[0].start, 1.5);
    EXPECT_EQ(simulated[0].communications[0].end, 8.5);
    EXPECT_EQ(simulated[0].time, 10.0);
    EXPECT_EQ(simulated[1].time, 11.0);
}

TEST(RankSimulation, CollectivesOfAGroupTakeTurns) {
    Program program;
    program.groups = {{"data", {0, 1}, 1}, {"tensor", {0, 1}, 2}};
    auto gather = [](int group) {
        return communication(InstructionKind::all_gather, 64, group);
    }; // 0.25 + 128 / 16 seconds
    program.segments = {{.instructions = {gather(0), gather(0), gather(1)}}};
    program.step = {{.segment = 0}};
    const std::vector<Outline> outlines = {outline(program, 0), outline(program, 1)};
    const auto simulated = simulate::simulate(outlines);
    EXPECT_EQ(simulated[1].communications[0].end, 8.25);
    EXPECT_EQ(simulated[1].communications[1].end, 16.5);
    EXPECT_EQ(simulated[1].communications[2].end, 8.25); // another group has another way
}

TEST(UnevenRanks, IsOneOfWhatThePacesAllow) {
    Program program;
    Instruction kernel{.op = "kernel"};
    kernel.inputs = {vector_of(25)}; // 1.5 seconds
    program.segments = {{.instructions = {kernel}}};
    program.step = {{.segment = 0}, {.segment = 0}};
    const std::vector<Outline> outlines(8, outline(program, 0));
    auto time_of = [&](std::vector<double> slowdowns) {
        double longest = 0;
        for (const SimulatedRank& rank : simulate_uneven(outlines, slowdowns)) longest = std::max(longest, rank.time);
        return longest;
    };
    EXPECT_EQ(time_of({1, 1, 1}), 3);
    EXPECT_EQ(time_of({2}), 6);
    EXPECT_EQ(time_of({0.5, 2}), 6); // of eight ranks one is slow, as good as always
    EXPECT_EQ(time_of({0.5, 2}), time_of({0.5, 2}));
}

TEST(RankSimulation, StagesOfOneRankHandOverByACopy) {
    Program program;
    program.groups = {{"pipe", {3}, 2}};
    Segment send{.kind = TaskKind::send, .instructions = {communication(InstructionKind::send, 25, 0, 0)}};
    Segment receive{.kind = TaskKind::receive, .instructions = {communication(InstructionKind::receive, 25, 0, 0)}};
    program.segments = {send, receive};
    program.step = {{.kind = TaskKind::send, .segment = 0}, {.kind = TaskKind::receive, .segment = 1}};
    const Outline one = outline(program, 3);
    EXPECT_TRUE(one.communications.empty());
    EXPECT_EQ(simulate::simulate(std::span(&one, 1))[0].time, 0.5 + 2);
}

TEST(RankSimulation, RanksThatDoNotMeetAreTold) {
    std::vector<Outline> outlines = {outline(two_ranks(0), 0), outline(two_ranks(1), 1)};
    outlines[1].communications[0].peer = 0;
    outlines[1].communications[0].sends = true; // nobody sends to it any more
    EXPECT_ERROR(simulate::simulate(outlines), "the programs are a deadlock");
}

// With messages that take no time both models of a pipeline are one, to the last digit.
TEST(RankSimulation, AgreesWithTheEvaluatorOfSchedules) {
    for (const char* family :
         {"gpipe", "1f1b", "interleaved", "chimera", "zb-1p", "zb-v", "dualpipe", "shifted-critical-path"}) {
        const ScheduleParameters p = resolve({.family = family, .ranks = 4, .micro_batches = 8});
        const Costs costs = uniform_costs(p, {.forward = 3, .backward = 5, .weight_gradient = 4});
        const Schedule schedule = make_schedule(p, costs);
        const Evaluation evaluation = evaluate(schedule, costs);
        std::vector<Outline> outlines;
        const std::vector<Program> programs = lower(schedule, costs);
        for (std::size_t r = 0; r < programs.size(); ++r) {
            Outline one;
            one.groups = {{"pipe", {0, 1, 2, 3}, 2}};
            std::vector<std::int32_t> communication_of;
            for (const Task& task : programs[r].step) {
                OutlineTask& made = one.tasks.emplace_back();
                const bool sends = task.kind == TaskKind::send;
                const bool message = sends || task.kind == TaskKind::receive;
                const bool away = message && task.peer != static_cast<int>(r);
                if (task.kind == TaskKind::reduce || task.kind == TaskKind::update) continue;
                for (std::int32_t wait : task.waits)
                    if (communication_of[static_cast<std::size_t>(wait)] >= 0)
                        made.awaited.push_back(communication_of[static_cast<std::size_t>(wait)]);
                communication_of.push_back(away ? static_cast<std::int32_t>(one.communications.size()) : -1);
                if (away) {
                    made.actions.push_back({Kind::start, communication_of.back()});
                    one.communications.push_back({.peer = task.peer, .sends = sends, .name = "message"});
                } else if (!message) {
                    made.actions.push_back(
                        {Kind::compute, -1, programs[r].segments[static_cast<std::size_t>(task.segment)].cost});
                }
            }
            outlines.push_back(std::move(one));
        }
        const auto simulated = simulate::simulate(outlines);
        std::size_t next = 0;
        for (std::size_t r = 0; r < programs.size(); ++r)
            for (std::size_t i = 0; i < programs[r].step.size(); ++i) {
                const TaskKind kind = programs[r].step[i].kind;
                if (kind == TaskKind::send || kind == TaskKind::receive || kind == TaskKind::reduce) continue;
                EXPECT_EQ(simulated[r].tasks[i].start, evaluation.start[next]) << family << " rank " << r;
                EXPECT_EQ(simulated[r].tasks[i].end, evaluation.end[next++]) << family << " rank " << r;
            }
        EXPECT_EQ(next, schedule.tasks.size());
    }
}

} // namespace
} // namespace tutti

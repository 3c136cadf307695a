// What an instruction says it is, it is: whoever runs, times or moves it looks at nothing else.
#include "base/error.h"
#include "compile/compile.h"
#include "models/model.h"
#include "ops/operators.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {

using namespace compile;
using namespace models;
using namespace ops;
using namespace schedule;
namespace {

// Among them they have every kind but all_to_all.
std::vector<Plan> plans_of_all_kinds() {
    std::vector<Plan> plans(4);
    for (Plan& plan : plans) plan.workload = {16, 8, 2};
    plans[0].mesh = {.data = 2};
    plans[1].mesh = {.data = 2};
    plans[1].zero = 3;
    plans[2].mesh = {.tensor = 2};
    plans[3].mesh = {.pipe = 2};
    const ScheduleParameters parameters =
        resolve({.family = "1f1b", .ranks = 2, .micro_batches = static_cast<int>(plans[3].micro_batches())});
    const Costs costs = uniform_costs(parameters, {});
    plans[3].schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
    plans[3].cuts = {2};
    return plans;
}

TEST(InstructionKinds, AreThoseOfTheirOperators) {
    std::set<InstructionKind> seen;
    const Model model = open_model("gpt2-tiny").build({2, 16, DType::float32});
    for (const Plan& plan : plans_of_all_kinds()) {
        const Program program = compile::compile(model.graph, plan, 0).program;
        for (const Segment& segment : program.segments)
            for (const Instruction& one : segment.instructions) {
                seen.insert(one.kind);
                const Operator* op = all_operators().find(one.op);
                EXPECT_TRUE(op ? kind_of(*op) == one.kind : one.op == name_of(one.kind)) << one.op;
            }
    }
    using enum InstructionKind;
    EXPECT_EQ(seen, (std::set<InstructionKind>{kernel, squared_norm, finish_norm, update, all_reduce, all_gather,
                                               reduce_scatter, gather_chunk, reduce_chunk, send, receive}));
}

TEST(InstructionKinds, OfAnotherLaneAreADefect) {
    const Model model = open_model("gpt2-tiny").build({2, 16, DType::float32});
    Program program = compile::compile(model.graph, plans_of_all_kinds()[0], 0).program;
    for (Segment& segment : program.segments)
        for (Instruction& one : segment.instructions)
            if (one.kind == InstructionKind::all_reduce) one.kind = InstructionKind::kernel;
    EXPECT_THROW(verify(program), Bug);
}

} // namespace
} // namespace tutti

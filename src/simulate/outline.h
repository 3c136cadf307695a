// Outline: a rank's step as the simulator sees it: how long it computes, which communication it starts, and where it
// waits for it, in the order of the executor (runtime/task_runner.h). It is small enough to be sent to the rank that
// simulates all of them.
#pragma once

#include "base/speed.h"
#include "costs/kernel_times.h"
#include "graph/operator.h"

#include <string>
#include <vector>

namespace tutti::simulate {

struct OutlineCommunication {
    std::int32_t task = 0, group = 0; // in Program::step, in Outline::groups
    std::int32_t peer = -1;           // of a message: rank of the world
    bool sends = false;
    Bytes bytes{};
    double seconds = 0; // from when all of its ranks have come
    std::string name{}; // "all_reduce"
};

struct OutlineAction {
    enum class Kind : std::uint8_t { compute, start, wait };
    Kind kind = Kind::compute;
    std::int32_t communication = -1; // in Outline::communications
    double seconds = 0;              // of computing
};

struct OutlineTask {
    std::vector<std::int32_t> awaited{}; // communication that has to be done before it begins
    std::vector<OutlineAction> actions{};
};

struct Outline {
    std::vector<GroupSpec> groups;
    std::vector<OutlineCommunication> communications;
    std::vector<OutlineTask> tasks; // as Program::step
};

// `rank`: of the world. Kernels take what was timed; those that were not, by their operator's cost and the speed.
Outline outline_of(const Program& program, int rank, const OperatorSet& operators, const costs::KernelTimes& times,
                   const KernelSpeed& kernels, const LinkSpeed& link);

Bytes bytes_of(const Instruction& instruction); // of its operands
// Operators that are not in `operators`, such as the optimizer's, take the time to move their operands.
double kernel_seconds(const Instruction& instruction, const OperatorSet& operators, const KernelSpeed& speed);
// A message, or a collective of so many ranks.
double communication_seconds(const Instruction& instruction, int ranks, const LinkSpeed& speed);

std::string to_text(const Outline& outline);
Outline parse_outline(std::string_view text); // of this program's own making

} // namespace tutti::simulate

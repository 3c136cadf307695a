// Moments: the uses of model data, and of activations that are offloaded, in a step of a Program, in the order of the
// executor. A moment is an instruction that touches any of it, or the end of a task whose exchanges do: until then they
// go on.
#pragma once

#include "offload/residency.h"
#include "program/program.h"

#include <functional>
#include <span>
#include <vector>

namespace tutti::offload {

// What comes and goes: a chunk of a list, or a piece of what is offloaded, by its number.
struct ChunkResident {
    Region region = Region::weights;
    std::int32_t chunk = 0;
    bool operator==(const ChunkResident&) const = default;
};

bool touches_chunks(const Instruction& instruction);
// Exchanges of chunks between ranks that do the same tasks end with their task, and few are under way at a time: the
// oldest ends before another begins. Between ranks at different places of a pipeline none may wait for another; what
// they exchange stays until the executor finishes it.
bool ends_with_task(const Program& program, const Instruction& instruction);
constexpr std::size_t most_chunk_exchanges = 2;
// Whether a task of this segment ends with a moment of its own.
bool ends_with_moment(const Segment& segment);

struct StepMoments {
    std::vector<ChunkResident> residents; // that the step uses and that are owned here
    ResidencyProblem problem;             // residents, uses and seconds; the rest is the caller's
    std::vector<std::int32_t> tasks;      // per moment, of Program::step
};

// What an instruction takes in a task of its segment.
using InstructionSeconds = std::function<double(const Instruction&, const Task&)>;

// An instruction on the host's lane uses chunks at home, and takes its time there. `stays`: whether a chunk is there
// anyway, and none of this problem's.
StepMoments moments_of(const Program& program, const InstructionSeconds& seconds,
                       const std::function<bool(const ChunkResident&)>& stays = {});

} // namespace tutti::offload

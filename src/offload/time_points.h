// Time points: when a step of a Program uses model data and offloaded activations, in the executor's order. A time
// point is an instruction that touches them, or the end of a task whose communication touches them, since that runs
// until then.
#pragma once

#include "offload/residency.h"
#include "program/program.h"

#include <functional>
#include <span>
#include <vector>

namespace tutti::offload {

// What is fetched and evicted as one: a chunk of a chunk list, or a piece of offloaded activations.
struct ChunkResident {
    Region region = Region::weights;
    std::int32_t chunk = 0;
    bool operator==(const ChunkResident&) const = default;
};

bool touches_chunks(const Instruction& instruction);
// Whether a communication of chunks ends with its task. It does so between ranks that do the same tasks; there few are
// under way at a time, and the oldest ends before another begins. Between ranks at different places of a pipeline no
// communication may wait for another; its chunks stay on the device until the executor finishes it.
bool ends_with_task(const Program& program, const Instruction& instruction);
constexpr std::size_t most_chunk_communications = 2;
// Whether a task of this segment ends with a time point of its own.
bool ends_with_time_point(const Segment& segment);

struct StepTimePoints {
    std::vector<ChunkResident> residents; // that the step uses and this rank owns
    ResidencyProblem problem;             // residents, uses and seconds; the rest is the caller's
    std::vector<std::int32_t> tasks;      // per time point, of Program::step
};

// What an instruction takes in a task of its segment.
using InstructionSeconds = std::function<double(const Instruction&, const Task&)>;

// An instruction on the host's lane uses the copies of chunks in host memory and takes the host's time.
// `always_on_device`: chunks that are left out, since they never leave the device.
StepTimePoints time_points_of(const Program& program, const InstructionSeconds& seconds,
                              const std::function<bool(const ChunkResident&)>& always_on_device = {});

} // namespace tutti::offload

// Program: all that one rank does in a training step, decided before the first one. The runtime executes it; a
// simulator can walk the same tasks with costs instead of kernels.
//
// Two levels. A Task is what schedules and reports speak of: a Segment bound to a micro-batch and a slot. A Segment is
// compiled once and expands to Instructions on planned memory. Addresses are a region and an offset; the task's binding
// makes them pointers.
#pragma once

#include "base/units.h"
#include "graph/attributes.h"
#include "graph/tensor_type.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class TaskKind : std::uint8_t {
    setup,           // tables that never change; once, before the first step
    load,            // tokens of a micro-batch
    forward,         // F
    backward,        // B: input gradients; with W fused into it unless the program splits them
    weight_gradient, // W
    norm,            // global gradient norm, loss, clip factor
    update,          // optimizer
    recompute,       // R: the activations of a forward that kept only its input
    send,            // an activation or a gradient, to the rank of a neighbouring stage
    receive,
    gather, // weights that are spread over ranks
    reduce, // gradients, over the ranks that hold the same stage
};

enum class Lane : std::uint8_t { compute, communication, host_to_device, device_to_host, host };

// Where a buffer lives. Chunks hold model data; a stash holds what the backward of one micro-batch needs of its
// forward.
enum class Region : std::uint8_t {
    weights, // chunk lists, mirrored: chunk k of each holds the same entries
    gradients,
    master,
    moments1,
    moments2,
    constants, // written by setup
    batch,     // token ids, per micro-batch
    results,   // sums over the micro-batches of a step
    stash,     // per slot
    transient, // within a segment
};
constexpr std::size_t region_count = 10;
constexpr bool is_chunk(Region region) { return region <= Region::moments2; }

struct Address {
    Region region = Region::transient;
    std::int32_t chunk = 0;  // which chunk, in chunk regions
    std::int64_t offset = 0; // in bytes
    bool operator==(const Address&) const = default;
};

enum class Access : std::uint8_t { read, write, accumulate };

struct Argument {
    Address address;
    TensorType type;
    Shape strides;
    Access access = Access::read;
};

struct Instruction {
    std::string op{};
    Attributes attributes{};
    std::string source{}; // place in the model
    Lane lane = Lane::compute;
    std::vector<Argument> inputs{};
    std::vector<Argument> outputs{};
    bool first_overwrites = false;     // outputs that accumulate are overwritten in the first micro-batch of a step
    std::vector<std::int32_t> waits{}; // earlier instructions of the segment, on other lanes
};

struct Segment {
    TaskKind kind = TaskKind::forward;
    std::int32_t stage = 0;
    std::vector<Instruction> instructions{};
    Bytes transient{}; // bytes of the transient region it uses
    double flops = 0;
    double cost = 0; // predicted duration, for the simulator
};

struct Task {
    TaskKind kind = TaskKind::forward;
    std::int32_t stage = 0;
    std::int32_t copy = 0;
    std::int32_t micro_batch = 0;
    std::int32_t segment = -1;         // none for load
    std::int32_t slot = 0;             // of the stash
    std::int32_t peer = -1;            // rank that a send goes to or a receive comes from
    std::vector<std::int32_t> waits{}; // earlier tasks of the step
};

// A value of the graph that a caller may read after its segment has run.
struct NamedBuffer {
    std::string name;
    Argument buffer;
};

struct Program {
    std::vector<Segment> segments;
    std::vector<Task> setup;
    std::vector<Task> step;
    std::vector<NamedBuffer> inputs;          // what load fills, in the batch region
    std::vector<NamedBuffer> outputs;         // logits, loss
    std::vector<std::int64_t> chunk_elements; // per chunk, in every chunk list
    std::array<DType, 5> chunk_dtypes{};      // per chunk region; master is there only where weights are 16-bit
    bool has_master = false;
    bool trains = false; // has gradients and moments
    std::int32_t slots = 1;
    std::int32_t micro_batches = 1;
    std::int64_t micro_batch_samples = 1;
    std::array<Bytes, region_count>
        sizes{}; // of regions that are no chunks, and of one copy of those that have several
};

std::string_view name_of(TaskKind kind);
std::string_view name_of(Region region);
std::string to_text(const Program& program); // for people: tasks, then segments with their instructions

// Rules the executor relies on: addresses within their regions; tasks and instructions wait only for earlier ones;
// nothing is read that this or an earlier task has not written; no instruction writes over another's live operand.
// Throws Bug.
void verify(const Program& program);

// How many of a region there are: a stash per slot, a batch per micro-batch.
std::int32_t copies(const Program& program, Region region);
// Which of them a task works on.
std::int32_t copy_of(const Task& task, Region region);

// Whether a program has this list of chunks, be it empty.
bool has_chunks(const Program& program, Region region);
// Bytes of all chunks of a region.
Bytes chunk_bytes(const Program& program, Region region);

} // namespace tutti

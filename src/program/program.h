// Program: all that one rank does in a training step, decided before the first one. The runtime executes it; a
// simulator can walk the same tasks with costs instead of kernels.
//
// Two levels. A Task is what schedules and reports speak of: a Segment bound to a micro-batch and a slot. A Segment is
// compiled once and expands to Instructions on planned memory. Addresses are a region and an offset; the task's binding
// makes them pointers.
#pragma once

#include "base/ranges.h"
#include "base/tensor_type.h"
#include "base/units.h"
#include "graph/attributes.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Operator;

enum class TaskKind : std::uint8_t {
    setup,           // tables that never change; once, before the first step
    load,            // tokens of a micro-batch
    clear,           // gradients that several stages add to, or that are kept as a share
    forward,         // F
    backward,        // B: input gradients; with W fused into it unless the program splits them
    weight_gradient, // W
    norm,            // global gradient norm, loss, clip factor
    update,          // optimizer
    recompute,       // R: the activations of a forward that kept only its input
    send,            // an activation or a gradient, to the rank of a neighbouring stage
    receive,
    gather, // weights that ZeRO shards over ranks
    reduce, // gradients, over the ranks that own the same stage
};

enum class Lane : std::uint8_t { compute, communication, host_to_device, device_to_host, host };

// Where a buffer lives. Chunks hold model data; what one task leaves for a later one of the same stage and micro-batch
// lies in slots, which are taken and given back as the task order says.
enum class Region : std::uint8_t {
    weights, // chunk lists, mirrored: chunk k of each holds the same entries
    gradients,
    master,
    moments1,
    moments2,
    constants,  // written by setup
    batch,      // token ids, per micro-batch
    results,    // sums over the micro-batches of a step
    received,   // slots: activations of the stage before, until the last task that reads them
    stash,      // slots: from the forward to the last task that reads it
    recomputed, // slots: from the recomputation on
    returned,   // slots: gradients from the stage after
    deferred,   // slots: from the backward to the weight gradient
    outbox,     // slots: until what a task made for another stage is sent
    transient,  // within a segment
    offloaded,  // like the stash, in pieces that lie on the device only while they are used
};
constexpr std::size_t region_count = 16;
constexpr bool is_chunk(Region region) { return region <= Region::moments2; }
// Whether it may be offloaded: with too little device memory, it lies on the device only at times.
constexpr bool may_be_offloaded(Region region) { return is_chunk(region) || region == Region::offloaded; }
constexpr std::size_t slotted_count = 6;
constexpr bool has_slots(Region region) { return region >= Region::received && region <= Region::outbox; }
constexpr std::size_t slotted(Region region) {
    return static_cast<std::size_t>(region) - static_cast<std::size_t>(Region::received);
}

struct Address {
    Region region = Region::transient;
    std::int32_t chunk = 0;  // which chunk, in chunk regions; which piece of a slot, of what is offloaded
    std::int64_t offset = 0; // in bytes
    bool operator==(const Address&) const = default;
};

enum class Access : std::uint8_t { read, write, accumulate };

struct Argument {
    Address address;
    TensorType type;
    Shape strides;
    Access access = Access::read;
    bool likely_cached = false; // a kernel of the same task has just touched it: it is likely to be in a cache

    bool operator==(const Argument&) const = default;
};

// What an instruction is, for those who run it, time it or move it.
enum class InstructionKind : std::uint8_t {
    kernel,         // of an operator of the model, or an accumulation
    squared_norm,   // a kernel, too: of a chunk's gradients
    finish_norm,    // a kernel, too: the global norm and the other StepScalars
    update,         // a kernel, too: the optimizer's pass over a chunk
    all_reduce,     // collectives, of a value or, all_reduce, of whole chunks
    all_gather,     //
    reduce_scatter, //
    all_to_all,     //
    gather_chunk,   // all_gather of a chunk, of which every rank has a share
    reduce_chunk,   // reduce_scatter of a chunk
    send,           // messages
    receive,        //
};

// Through a group, on the communication lane; a message has a peer.
constexpr bool is_communication(InstructionKind kind) { return kind >= InstructionKind::all_reduce; }
constexpr bool is_message(InstructionKind kind) { return kind >= InstructionKind::send; }

struct Instruction {
    std::string op{}; // the operator; of a communication without an operator, the name of its kind
    InstructionKind kind = InstructionKind::kernel;
    Attributes attributes{};
    std::string source{}; // place in the model
    Lane lane = Lane::compute;
    std::vector<Argument> inputs{};
    std::vector<Argument> outputs{};
    bool first_overwrites = false; // outputs that accumulate are overwritten by the step's first task of its kind
    bool only_last = false;        // run by the step's last task of its kind only
    bool of_last_step = false;     // an update that the step before left: run by the first task of its kind only
    bool awaited = false;          // a communication that others of its segment wait for, even if it is of whole chunks
    std::int32_t group = -1;       // of the program, that a collective or a message goes through
    std::int32_t peer = -1;        // rank within that group, of a message
    std::vector<std::int32_t> waits{}; // earlier instructions of the segment, on other lanes

    bool operator==(const Instruction&) const = default;
};

// What the ranks of a group have in common.
enum class GroupKind : std::uint8_t {
    world,  // nothing: all of them
    tensor, // they share operators, along the tensor axis or a part of it
    pipe,   // stages of one replica, which hand over
    data,   // replicas
    owners, // a stage that all of them own, or a tied tensor: they communicate chunks
};

// Ranks that communicate, as the runtime makes them (comm/group.h).
struct GroupSpec {
    std::string name;
    std::vector<int> members; // ranks of the world
    int channel = 0;
    bool across_pipe = false; // its ranks do other tasks, so one may need another before it comes to a communication
    GroupKind kind = GroupKind::world;
    bool operator==(const GroupSpec&) const = default;
};

struct Segment {
    TaskKind kind = TaskKind::forward;
    std::int32_t stage = 0;
    std::vector<Instruction> instructions{};
    Bytes transient{}; // bytes of the transient region it uses
    double flops = 0;
    double cost = 0; // predicted duration, for the simulator

    bool operator==(const Segment&) const = default;
};

struct Task {
    TaskKind kind = TaskKind::forward;
    std::int32_t stage = 0;
    std::int32_t replica = 0;
    std::int32_t micro_batch = 0;
    std::int32_t segment = -1;                       // none for load
    std::int32_t local = 0;                          // the stage and replica among those of this rank
    std::array<std::int32_t, slotted_count> slots{}; // of the regions that have slots
    std::int32_t peer = -1; // pipeline rank that a send goes to or a receive comes from; this one: the next task's
    bool gradient = false;  // a send or receive: of a gradient, not of an activation
    bool first = true;      // of the tasks that accumulate what this one does, in a step
    bool last = true;
    std::vector<std::int32_t> waits{}; // earlier tasks of the step

    bool operator==(const Task&) const = default;
};

// A stage that a rank works on, and the slots that its tasks share.
struct LocalStage {
    std::int32_t stage = 0, replica = 0;
    std::array<Bytes, slotted_count> sizes{};                        // of one slot
    std::array<std::int32_t, slotted_count> slots{1, 1, 1, 1, 1, 1}; // how many there are
    std::vector<Bytes> pieces{};                                     // of a stash slot: what of it is offloaded

    bool operator==(const LocalStage&) const = default;
};

// A value of the graph that a caller may read after its segment has run.
struct NamedBuffer {
    std::string name;
    Argument buffer;

    bool operator==(const NamedBuffer&) const = default;
};

struct Program {
    std::vector<Segment> segments;
    std::vector<Task> setup;
    std::vector<Task> step;
    std::vector<GroupSpec> groups;
    std::vector<LocalStage> stages;
    std::vector<NamedBuffer> inputs;          // what load fills, in the batch region
    std::vector<NamedBuffer> outputs;         // logits, loss
    std::vector<std::int64_t> chunk_elements; // per chunk, in every chunk list
    // Per chunk region, and per chunk: the elements that this rank owns. Empty: all of every chunk.
    std::array<std::vector<Range>, 5> owned{};
    std::array<DType, 5> chunk_dtypes{}; // per chunk region; master is there only where weights are 16-bit
    bool has_master = false;
    bool trains = false; // has gradients and moments
    std::int32_t micro_batches = 1;
    std::int64_t micro_batch_samples = 1;
    std::int64_t first_sample = 0;           // of this rank's replica, within the step
    std::array<Bytes, region_count> sizes{}; // of regions that are neither chunks nor slots; of one micro-batch's batch

    Range owned_of(Region region, std::int32_t chunk) const;
    bool operator==(const Program&) const = default;
};

// That of the instructions that carry an operator out.
InstructionKind kind_of(const Operator& op);
// A communication through a group, without its operands.
Instruction communication_of(InstructionKind kind, std::int32_t group, Attributes attributes = {},
                             std::int32_t peer = -1);

std::string_view name_of(InstructionKind kind);
std::string_view name_of(TaskKind kind);
std::string_view name_of(Region region);
std::string to_text(const Program& program); // for people: tasks, then segments with their instructions

// Rules the executor relies on: addresses within their regions; tasks and instructions wait only for earlier ones;
// nothing is read that this or an earlier task has not written; no instruction writes over another's live operand.
// Throws Bug.
void verify(const Program& program);

// Whether an instruction is a communication that no instruction of its task waits for: of whole chunks, started by the
// last task that adds to them, and not `awaited`. The tasks `reduce` and `norm` wait for it.
bool is_detached(const Instruction& instruction);

// The larger operand of a communication: what is reduced, gathered, sent or received.
Bytes communicated_bytes(const Instruction& instruction);

// Whether a task runs an instruction of its segment.
inline bool is_run_by(const Instruction& instruction, const Task& task) {
    return (!instruction.only_last || task.last) && (!instruction.of_last_step || task.first);
}

// Whether it has outputs that it adds to, and whether it does so in this task.
bool adds(const Instruction& instruction);
bool accumulates(const Instruction& instruction, const Task& task);

// Bytes of all slots of a region.
Bytes slot_bytes(const Program& program, Region region);

// The number of an offloaded piece, as a task sees it, among those of all stages and slots.
std::int32_t piece_number(const Program& program, const Address& address, const Task& task);
Bytes piece_bytes(const Program& program); // of all of them

// Whether a program has this list of chunks, be it empty.
bool has_chunks(const Program& program, Region region);
// Bytes of what is owned of all chunks of a region.
Bytes chunk_bytes(const Program& program, Region region);

} // namespace tutti

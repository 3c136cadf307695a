// Device: what a backend offers to the runtime. It knows operators and memory, not graphs, passes or plans.
//
// A kernel is prepared once for an operator, its attributes and the layouts of its operands, and then run any number of
// times on pointers; nothing is allocated when it runs. What it needs beside its operands is a workspace whose size it
// states. Work is given to queues: on a CPU it is done when the call returns, on a GPU some time later, in order.
#pragma once

#include "base/speed.h"
#include "base/tensor_type.h"
#include "base/units.h"
#include "graph/attributes.h"
#include "program/step_scalars.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::backend {

// An operand as a kernel is prepared for it. Pointers given to `run` point at its first element.
struct Operand {
    TensorType type;
    Shape strides; // in elements

    std::int64_t elements() const { return type.elements(); }
    bool dense() const { return is_dense(type.shape, strides); }
};

// What a kernel is prepared for. A plain value: kernels keep a copy.
struct KernelRequest {
    std::string op;
    Attributes attributes;
    std::vector<Operand> inputs;  // in layouts that the operator accepts
    std::vector<Operand> outputs; // in layouts that it writes; gradients of parameters have the parameter's strides
    bool accumulate = false;      // add into the outputs that the operator can add into instead of overwriting them
    std::string source;           // the node's place in the model: the stream of its random numbers
};

class Queue;

// All pointers are to device memory, the scalars' too.
struct Launch {
    std::span<const std::byte* const> inputs;
    std::span<std::byte* const> outputs;
    std::byte* workspace = nullptr;
    StepScalars* scalars = nullptr;
    std::int64_t samples_before = 0; // samples of the step's earlier micro-batches
    Queue* queue = nullptr;

    template <class T>
    const T* in(std::size_t i) const {
        return reinterpret_cast<const T*>(inputs[i]);
    }
    template <class T>
    T* out(std::size_t i) const {
        return reinterpret_cast<T*>(outputs[i]);
    }
};

class Kernel {
  public:
    virtual ~Kernel() = default;
    virtual Bytes workspace() const { return {}; } // aligned to 256 bytes when given
    virtual void run(const Launch& launch) const = 0;
};

// A block of memory, given back when it is destroyed.
class Arena {
  public:
    virtual ~Arena() = default;
    virtual std::byte* data() const = 0;
    virtual Bytes size() const = 0;
};

// A moment in the work of a queue.
class Event {
  public:
    virtual ~Event() = default;
    virtual void synchronize() const = 0; // waits, on the host, until it has come
    virtual bool has_come() const = 0;
};

// Work kept to be given again, as a whole and at little cost.
class Recording {
  public:
    virtual ~Recording() = default;
};

// Work done in the order it is given. Queues run side by side where the device can; `wait` puts them in order.
class Queue {
  public:
    virtual ~Queue() = default;
    // The host's side has to come from Device::allocate_staging and to stay as it is until the copy is done.
    virtual void copy_in(std::byte* to, std::span<const std::byte> from) = 0;
    virtual void copy_out(std::span<std::byte> to, const std::byte* from) = 0;
    // Within the device's memory: `count` blocks of `bytes`, each a stride behind the one before it.
    virtual void copy_blocks(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                             std::int64_t bytes, std::int64_t count) = 0;
    virtual void clear(std::span<std::byte> bytes) = 0; // device memory, to zeros
    // The moment when all that was given so far is done.
    virtual std::shared_ptr<const Event> mark() = 0;
    // Writes there when that was, by steady_now, before the next event comes.
    virtual void note_time(Seconds& moment) = 0;
    // What is given from now on runs after the event, of this queue or any other.
    virtual void wait(const std::shared_ptr<const Event>& event) = 0;
    virtual void synchronize() = 0;
    // What `work` gives to this queue, not done now but kept. Null where the device gains nothing by it.
    virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
    virtual void replay(const Recording& recording) = 0;
    // As the device's own libraries know it: a CUDA stream. Null where work is done at once.
    virtual void* native() const { return nullptr; }
};

struct DeviceMemory {
    Bytes total, free;
};

class Device {
  public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;  // "cpu", "cuda"
    virtual std::string model() const = 0; // the hardware, in words
    virtual bool supports(DType dtype) const = 0;
    // Whether work goes on after the call that gave it has returned.
    virtual bool asynchronous() const { return false; }
    // Error naming the operator and the types where this backend has no kernel for them.
    virtual std::unique_ptr<Kernel> prepare(const KernelRequest& request) const = 0;
    virtual std::unique_ptr<Queue> make_queue() const = 0;
    // For copies alone, beside what other queues compute.
    virtual std::unique_ptr<Queue> make_copy_queue() const { return make_queue(); }
    // Zeroed, aligned to at least 256 bytes. WorldError with the size where there is no room.
    virtual std::unique_ptr<Arena> allocate(Bytes size) const = 0;
    // Host memory that queues copy from and to.
    virtual std::unique_ptr<Arena> allocate_staging(Bytes size) const = 0;
    // At once, after all that was given to any queue; from and to any host memory.
    virtual void copy_in(std::byte* to, std::span<const std::byte> from) const = 0;
    virtual void copy_out(std::span<std::byte> to, const std::byte* from) const = 0;
    virtual void synchronize() const = 0;
    // Tells it from all others, also of other machines. Empty where its memory is the host's.
    virtual std::string identity() const { return {}; }
    // Which algorithms were timed and found to be the fastest, by the work in words: for a plan to record.
    virtual std::map<std::string, std::string> timed_choices() const { return {}; }
    // As recorded before: kernels that are prepared from now on follow these where they can, and time the rest.
    virtual void follow_timed_choices(const std::map<std::string, std::string>&) {}
    // How the kernels prepared so far run where there are several ways, and which of them are slow, why, and what would
    // avoid it: sentences, each said once.
    virtual std::vector<std::string> chosen_kernels() const { return {}; }
    virtual std::vector<std::string> slow_kernels() const { return {}; }
    // Of the device itself; nothing where its memory is the host's.
    virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }
    // What its driver says of its speed; nothing where there is none.
    virtual std::optional<GpuFigures> figures() const { return std::nullopt; }
};

} // namespace tutti::backend

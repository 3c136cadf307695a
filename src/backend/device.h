// Device: what a backend offers to the runtime. It knows operators and memory, not graphs, passes or plans.
//
// A kernel is prepared once for an operator, its attributes and the layouts of its operands, and then run any number of
// times on pointers; nothing is allocated when it runs. What it needs beside its operands is a workspace whose size it
// states.
#pragma once

#include "base/units.h"
#include "graph/attributes.h"
#include "graph/tensor_type.h"
#include "program/step_scalars.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

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
    std::vector<Operand> outputs; // dense, but for gradients of parameters: these have the parameter's strides
    bool accumulate = false;      // add into the outputs instead of overwriting (operators that accumulate)
    std::string source;           // the node's place in the model: the stream of its random numbers
};

struct Launch {
    std::span<const std::byte* const> inputs;
    std::span<std::byte* const> outputs;
    std::byte* workspace = nullptr;
    StepScalars* scalars = nullptr;

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
    virtual Bytes workspace() const { return {}; } // aligned to 64 bytes when given
    virtual void run(const Launch& launch) const = 0;
};

// A block of device memory, given back when it is destroyed.
class Arena {
  public:
    virtual ~Arena() = default;
    virtual std::byte* data() const = 0;
    virtual Bytes size() const = 0;
};

class Device {
  public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;
    virtual bool supports(DType dtype) const = 0;
    // Error naming the operator and the types where this backend has no kernel for them.
    virtual std::unique_ptr<Kernel> prepare(const KernelRequest& request) const = 0;
    // Zeroed, aligned to at least 64 bytes. WorldError with the size where there is no room.
    virtual std::unique_ptr<Arena> allocate(Bytes size) const = 0;
    virtual void copy_in(std::byte* to, std::span<const std::byte> from) const = 0;
    virtual void copy_out(std::span<std::byte> to, const std::byte* from) const = 0;
    // Waits until all that was launched has run.
    virtual void synchronize() const = 0;
};

} // namespace tutti

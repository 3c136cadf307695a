// Runs operators and whole graphs on any device, one kernel after the other, each value in memory of its own. Slow and
// simple: what tests hold the compiled Program against.
#pragma once

#include "backend/device.h"
#include "backend/storage.h"
#include "base/error.h"
#include "graph/graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::testing {

// Bytes of an element type from doubles, rounding to it, and back.
inline std::vector<std::byte> encode(const std::vector<double>& values, DType dtype) {
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
    backend::with_storage(dtype, [&]<class T>(T) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const T element = backend::from_double<T>(values[i]);
            std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
        }
    });
    return bytes;
}

inline std::vector<double> decode(const std::vector<std::byte>& bytes, DType dtype) {
    std::vector<double> values;
    backend::with_storage(dtype, [&]<class T>(T element) {
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
            std::memcpy(&element, bytes.data() + at, sizeof(T));
            values.push_back(backend::to_double(element));
        }
    });
    return values;
}

inline double rounded(double value, DType dtype) { return decode(encode({value}, dtype), dtype)[0]; }

// A tensor on the host: its whole storage as doubles, and where in it the elements lie.
struct HostTensor {
    TensorType type;
    Layout layout;
    std::vector<double> storage;

    // Where the i-th element, counted in row-major order, lies in the storage.
    std::size_t place(std::int64_t i) const {
        std::int64_t at = layout.offset;
        for (int d = type.shape.rank() - 1; d >= 0; --d) {
            at += i % type.shape[d] * layout.strides[d];
            i /= type.shape[d];
        }
        return static_cast<std::size_t>(at);
    }
    std::vector<double> values() const {
        std::vector<double> result;
        for (std::int64_t i = 0; i < type.elements(); ++i) result.push_back(storage[place(i)]);
        return result;
    }
    void set_values(const std::vector<double>& values) {
        for (std::int64_t i = 0; i < type.elements(); ++i) storage[place(i)] = values[static_cast<std::size_t>(i)];
    }
};

inline HostTensor dense_tensor(const TensorType& type, std::vector<double> values = {}) {
    values.resize(static_cast<std::size_t>(type.elements()));
    return {type, dense_layout(type.shape), std::move(values)};
}

// Elements of a storage that a layout reaches into.
inline std::int64_t extent_of(const Shape& shape, const Layout& layout) {
    std::int64_t last = layout.offset;
    for (int d = 0; d < shape.rank(); ++d) last += (shape[d] - 1) * layout.strides[d];
    return last + 1;
}

// Memory of a device that holds a storage of some element type.
class DeviceStorage {
  public:
    DeviceStorage(const backend::Device& device, DType dtype, std::int64_t elements)
        : device_(&device), dtype_(dtype), elements_(elements), arena_(device.allocate({elements * size_of(dtype)})) {}

    void write(const std::vector<double>& values) { device_->copy_in(arena_->data(), encode(values, dtype_)); }
    std::vector<double> read() const {
        std::vector<std::byte> bytes(static_cast<std::size_t>(elements_ * size_of(dtype_)));
        device_->copy_out(bytes, arena_->data());
        return decode(bytes, dtype_);
    }
    std::byte* at(std::int64_t offset) const { return arena_->data() + offset * size_of(dtype_); }
    void write_from(std::int64_t first, const std::vector<double>& values) {
        device_->copy_in(at(first), encode(values, dtype_));
    }

  private:
    const backend::Device* device_;
    DType dtype_;
    std::int64_t elements_;
    std::unique_ptr<backend::Arena> arena_;
};

// The step's scalars where kernels of a device read and write them.
class DeviceScalars {
  public:
    explicit DeviceScalars(const backend::Device& device)
        : device_(&device), arena_(device.allocate({static_cast<std::int64_t>(sizeof(StepScalars))})) {}

    void write(const StepScalars& scalars) { device_->copy_in(arena_->data(), std::as_bytes(std::span(&scalars, 1))); }
    StepScalars read() const {
        StepScalars scalars;
        device_->copy_out(std::as_writable_bytes(std::span(&scalars, 1)), arena_->data());
        return scalars;
    }
    StepScalars* pointer() const { return reinterpret_cast<StepScalars*>(arena_->data()); }

  private:
    const backend::Device* device_;
    std::unique_ptr<backend::Arena> arena_;
};

struct RunOptions {
    bool accumulate = false;
    int in_place = -1; // this input's memory is output 0's, too
    std::string source = {};
};

// Runs one kernel. What the outputs hold before matters where it accumulates or updates; afterwards they hold the
// result.
inline void run_kernel(const backend::Device& device, const std::string& op, const Attributes& attributes,
                       const std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs, StepScalars& scalars,
                       const RunOptions& options = {}) {
    backend::KernelRequest request{op, attributes, {}, {}, options.accumulate, options.source};
    std::vector<DeviceStorage> in, out;
    std::vector<const std::byte*> in_pointers;
    std::vector<std::byte*> out_pointers;
    for (const HostTensor& tensor : inputs) {
        request.inputs.push_back({tensor.type, tensor.layout.strides});
        in.emplace_back(device, tensor.type.dtype, static_cast<std::int64_t>(tensor.storage.size()))
            .write(tensor.storage);
        in_pointers.push_back(in.back().at(tensor.layout.offset));
    }
    for (const HostTensor& tensor : outputs) {
        request.outputs.push_back({tensor.type, tensor.layout.strides});
        out.emplace_back(device, tensor.type.dtype, static_cast<std::int64_t>(tensor.storage.size()))
            .write(tensor.storage);
        out_pointers.push_back(out.back().at(tensor.layout.offset));
    }
    if (options.in_place >= 0)
        out_pointers[0] = in[static_cast<std::size_t>(options.in_place)].at(
            inputs[static_cast<std::size_t>(options.in_place)].layout.offset);
    const auto kernel = device.prepare(request);
    const auto workspace = device.allocate(kernel->workspace());
    const auto queue = device.make_queue();
    DeviceScalars held(device);
    held.write(scalars);
    kernel->run({.inputs = in_pointers,
                 .outputs = out_pointers,
                 .workspace = workspace->data(),
                 .scalars = held.pointer(),
                 .queue = queue.get()});
    device.synchronize();
    scalars = held.read();
    for (std::size_t i = 0; i < outputs.size(); ++i)
        outputs[i].storage =
            i == 0 && options.in_place >= 0 ? in[static_cast<std::size_t>(options.in_place)].read() : out[i].read();
}

// Runs a graph. Set inputs and stored tensors, run, read any value:
//
//   Interpreter run(graph, device);
//   run.set(x, values);  run.set_stored(0, values);
//   run.run();
//   run.get(loss);  run.gradient_of(weight);
//
// Views cost nothing; an input whose layout its operator does not accept is copied first.
class Interpreter {
  public:
    StepScalars scalars;

    Interpreter(const Graph& graph, const backend::Device& device)
        : graph_(graph), device_(device), queue_(device.make_queue()), held_(device) {
        for (const StoredTensor& stored : graph.stored())
            stored_.emplace_back(device, stored.type.dtype, stored.type.elements());
        for (const Parameter& parameter : graph.parameters()) {
            if (parameter.further.empty()) continue;
            std::int64_t elements = 0;
            for (std::int32_t stored : parameter.run())
                elements += graph.stored()[static_cast<std::size_t>(stored)].type.elements();
            runs_.try_emplace(parameter.value, device, graph.type(parameter.value).dtype, elements);
        }
        for (std::size_t i = 0; i < graph.nodes().size(); ++i) prepare(graph.nodes()[i]);
    }

    void set(ValueId input, const std::vector<double>& values) { storage(input).write(values); }
    void set_stored(std::size_t stored, const std::vector<double>& values) {
        stored_[stored].write(values);
        for (auto& [parameter, storage] : runs_) {
            std::int64_t first = 0;
            for (std::int32_t member : graph_.parameter_of(parameter)->run()) {
                if (static_cast<std::size_t>(member) == stored) storage.write_from(first, values);
                first += graph_.stored()[static_cast<std::size_t>(member)].type.elements();
            }
        }
    }

    // Runs the nodes [first, last); all of them where nothing is said.
    void run(std::size_t first = 0, std::size_t last = static_cast<std::size_t>(-1)) {
        held_.write(scalars);
        if (!workspace_ || workspace_->size() < most_workspace_) workspace_ = device_.allocate(most_workspace_);
        for (const Step& step : steps_)
            if (step.node >= first && step.node < last)
                step.kernel->run({.inputs = step.inputs,
                                  .outputs = step.outputs,
                                  .workspace = workspace_->data(),
                                  .scalars = held_.pointer(),
                                  .queue = queue_.get()});
        device_.synchronize();
        scalars = held_.read();
    }

    // In row-major order, whatever the value's layout.
    std::vector<double> get(ValueId value) {
        const Value& v = graph_.value(value);
        return HostTensor{v.type, v.layout, storage(value).read()}.values();
    }

    // The sum of the contributions to a parameter, as differentiate leaves them.
    std::vector<double> gradient_of(ValueId parameter) {
        std::vector<double> sum(static_cast<std::size_t>(graph_.type(parameter).elements()), 0);
        for (const Output& output : graph_.outputs()) {
            if (output.parameter != parameter) continue;
            const std::vector<double> contribution = get(output.value);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += contribution[i];
        }
        return sum;
    }

  private:
    struct Step {
        std::size_t node;
        std::unique_ptr<backend::Kernel> kernel;
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
    };

    // Memory of the value that owns it: a stored tensor or a run of them for parameters, else the value's own.
    DeviceStorage& storage(ValueId id) {
        const ValueId owner = graph_.value(id).storage;
        if (const auto run = runs_.find(owner); run != runs_.end()) return run->second;
        if (const Parameter* parameter = graph_.parameter_of(owner))
            return stored_[static_cast<std::size_t>(parameter->stored)];
        const auto found = values_.find(owner);
        if (found != values_.end()) return found->second;
        const TensorType& type = graph_.type(owner);
        return values_.try_emplace(owner, device_, type.dtype, type.elements()).first->second;
    }

    backend::Operand operand(ValueId id) const { return {graph_.type(id), graph_.value(id).layout.strides}; }
    std::byte* pointer(ValueId id) { return storage(id).at(graph_.value(id).layout.offset); }

    void prepare(const Node& node) {
        if (node.op->view || node.op->collective) return; // what ranks do together, tests do for them
        const auto number = static_cast<std::size_t>(&node - graph_.nodes().data());
        backend::KernelRequest request{std::string(node.op->name), node.attributes, {}, {}, false, node.source};
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
        for (ValueId id : node.inputs) {
            backend::Operand as_is = operand(id);
            const std::byte* at = pointer(id);
            if (!accepted(node.op->accepts, as_is.type.shape, as_is.strides)) {
                const backend::Operand dense{as_is.type, dense_strides(as_is.type.shape)};
                copies_.emplace_back(device_, as_is.type.dtype, as_is.elements());
                add({"contiguous", {}, {as_is}, {dense}, false, node.source}, number, {at}, {copies_.back().at(0)});
                as_is = dense;
                at = copies_.back().at(0);
            }
            request.inputs.push_back(as_is);
            inputs.push_back(at);
        }
        for (ValueId id : node.outputs) {
            request.outputs.push_back(operand(id));
            outputs.push_back(pointer(id));
        }
        add(request, number, std::move(inputs), std::move(outputs));
    }

    void add(const backend::KernelRequest& request, std::size_t node, std::vector<const std::byte*> inputs,
             std::vector<std::byte*> outputs) {
        auto kernel = device_.prepare(request);
        most_workspace_ = std::max(most_workspace_, kernel->workspace());
        steps_.push_back({node, std::move(kernel), std::move(inputs), std::move(outputs)});
    }

    const Graph& graph_;
    const backend::Device& device_;
    std::unique_ptr<backend::Queue> queue_;
    DeviceScalars held_;
    std::vector<DeviceStorage> stored_;
    std::map<ValueId, DeviceStorage> runs_; // of parameters that are several stored tensors
    std::map<ValueId, DeviceStorage> values_;
    std::vector<DeviceStorage> copies_;
    std::vector<Step> steps_;
    Bytes most_workspace_;
    std::unique_ptr<backend::Arena> workspace_; // one kernel's at a time
};

} // namespace tutti::testing

// How fast single operators are at the shapes of models.
//   operator_speed cuda|cpu [FILTER] [BATCH]
// FILTER: lines in which this text occurs. The inputs lie in several places that are used in turn, so that little of
// them is in a cache; where the device records work, the time is that of replaying it.
#include "shapes/model_operators.h"

#include "backend/cpu/cpu.h"
#include "backend/plugin.h"
#include "base/error.h"
#include "base/philox.h"
#include "ops/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tutti {

using namespace backend;
using namespace ops;
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(T));
}

// A stretch of random elements, repeated through a tensor.
std::vector<std::byte> pattern(const BenchTensor& tensor) {
    constexpr std::uint64_t count = (1 << 19) + 1;
    std::vector<std::byte> bytes;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t bits = mix_bits(7, i);
        const auto id =
            static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(std::max<std::int64_t>(tensor.below, 1)));
        const float value = uniform_from_bits(static_cast<std::uint32_t>(bits)) + (tensor.positive ? 0.01F : -0.5F);
        switch (tensor.type.dtype) {
        case DType::float32: append(bytes, value); break;
        case DType::bfloat16: append(bytes, BFloat16(value)); break;
        case DType::int64: append(bytes, id); break;
        default: fail("no pattern for {}", name_of(tensor.type.dtype));
        }
    }
    return bytes;
}

std::unique_ptr<Arena> filled(const Device& device, const BenchTensor& tensor) {
    const auto size = static_cast<std::size_t>(tensor.type.bytes().count);
    auto arena = device.allocate(tensor.type.bytes());
    const std::vector<std::byte> bytes = pattern(tensor);
    for (std::size_t at = 0; at < size; at += bytes.size())
        device.copy_in(arena->data() + at, std::span(bytes).first(std::min(bytes.size(), size - at)));
    return arena;
}

// The operands of one run.
struct Places {
    std::vector<std::unique_ptr<Arena>> arenas;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
};

std::vector<TensorType> types_of(const std::vector<BenchTensor>& tensors) {
    std::vector<TensorType> types;
    for (const BenchTensor& tensor : tensors) types.push_back(tensor.type);
    return types;
}

std::vector<Operand> dense(const std::vector<TensorType>& types) {
    std::vector<Operand> operands;
    for (const TensorType& type : types) operands.push_back({type, dense_strides(type.shape)});
    return operands;
}

// One operator, ready to be run again and again.
class Bench {
  public:
    Bench(const Device& device, const BenchOperator& one)
        : device_(device), queue_(device.make_queue()), inputs_(types_of(one.inputs)),
          outputs_(one.outputs.empty() ? all_operators().at(one.op).infer(inputs_, one.attributes)
                                       : types_of(one.outputs)),
          kernel_(device.prepare({one.op, one.attributes, dense(inputs_), dense(outputs_), false, "bench"})),
          workspace_(device.allocate(kernel_->workspace())),
          scalars_(device.allocate({static_cast<std::int64_t>(sizeof(StepScalars))})) {
        StepScalars scalars;
        scalars.learning_rate = 1e-5;
        device.copy_in(scalars_->data(), std::as_bytes(std::span(&scalars, 1)));
        constexpr std::int64_t beyond_caches = 256 << 20, most = 6;
        std::int64_t bytes = 0;
        for (const auto* types : {&inputs_, &outputs_})
            for (const TensorType& type : *types) bytes += type.bytes().count;
        const bool host = device.name() == "cpu";
        for (std::int64_t i = 0; i < (host ? 1 : std::clamp<std::int64_t>(beyond_caches / bytes, 1, most)); ++i)
            places_.push_back(place(one));
        device.synchronize();
    }

    // Of one run: the best of a few rounds.
    double seconds() {
        run_all(); // loads what is loaded on first use
        queue_->synchronize();
        const auto recording = queue_->record([&] { run_all(); });
        const auto round = [&](int repeats) {
            const double start = now();
            for (int i = 0; i < repeats; ++i) recording ? queue_->replay(*recording) : run_all();
            queue_->synchronize();
            return (now() - start) / repeats / static_cast<double>(places_.size());
        };
        const double first = round(1) * static_cast<double>(places_.size());
        const int repeats = std::clamp(static_cast<int>(0.02 / first), 1, 200);
        double best = round(repeats);
        for (int i = 0; i < 4; ++i) best = std::min(best, round(repeats));
        return best;
    }

    Cost cost(const BenchOperator& one) const {
        return all_operators().at(one.op).cost(inputs_, outputs_, one.attributes);
    }

  private:
    Places place(const BenchOperator& one) {
        Places result;
        for (const BenchTensor& tensor : one.inputs) {
            result.arenas.push_back(filled(device_, tensor));
            result.inputs.push_back(result.arenas.back()->data());
        }
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            result.arenas.push_back(one.outputs.empty() ? device_.allocate(outputs_[i].bytes())
                                                        : filled(device_, one.outputs[i]));
            result.outputs.push_back(result.arenas.back()->data());
        }
        return result;
    }

    void run_all() const {
        for (const Places& places : places_)
            kernel_->run({.inputs = places.inputs,
                          .outputs = places.outputs,
                          .workspace = workspace_->data(),
                          .scalars = reinterpret_cast<StepScalars*>(scalars_->data()),
                          .queue = queue_.get()});
    }

    const Device& device_;
    std::unique_ptr<Queue> queue_;
    std::vector<TensorType> inputs_, outputs_;
    std::unique_ptr<Kernel> kernel_;
    std::unique_ptr<Arena> workspace_, scalars_;
    std::vector<Places> places_;
};

void run(const Device& device, const std::string& filter, std::int64_t batch) {
    fmt::print("{} ({}), batch {}\n", device.name(), device.model(), batch);
    fmt::print("{:6} {:30} {:18} {:>9} {:>8} {:>8}\n", "model", "operator", "", "ms", "GB/s", "TFLOP/s");
    for (const BenchOperator& one : model_operators(batch)) {
        const std::string name = fmt::format("{:6} {:30} {:18}", one.model, one.op, one.what);
        if (name.find(filter) == std::string::npos || all_operators().find(one.op) == nullptr) continue;
        try {
            Bench bench(device, one);
            const double seconds = bench.seconds();
            const Cost cost = bench.cost(one);
            fmt::print("{} {:9.4f} {:8.1f} {:8.1f}\n", name, 1e3 * seconds,
                       static_cast<double>(cost.bytes.count) / seconds / 1e9, cost.flops.count / seconds / 1e12);
        } catch (const std::exception& error) {
            fmt::print("{} {}\n", name, error.what());
        }
        std::fflush(stdout);
    }
}

} // namespace
} // namespace tutti

int main(int count, char** arguments) {
    const std::string device = count > 1 ? arguments[1] : "cuda", filter = count > 2 ? arguments[2] : "";
    const std::int64_t batch = count > 3 ? std::atoll(arguments[3]) : 32;
    try {
        const auto opened =
            device == "cpu" ? tutti::backend::cpu::make_cpu_device(0) : tutti::backend::open_plugin_device(device);
        tutti::run(*opened, filter, batch);
    } catch (const std::exception& error) {
        fmt::print(stderr, "operator_speed: {}\n", error.what());
        return 2;
    }
    return 0;
}

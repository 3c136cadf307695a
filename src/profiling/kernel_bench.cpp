#include "profiling/kernel_bench.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/philox.h"
#include "memory/liveness.h"
#include "runtime/prepare.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace tutti::profiling {
namespace {

constexpr bool is_far(TimingPlace place) {
    return place == TimingPlace::uncached_read || place == TimingPlace::uncached_written;
}

std::int64_t span_of(const Argument& argument) {
    std::int64_t elements = 1;
    for (int i = 0; i < argument.type.shape.rank(); ++i) {
        if (argument.type.shape[i] == 0) return 0;
        elements += (argument.type.shape[i] - 1) * argument.strides[i];
    }
    return round_up(elements * size_of(argument.type.dtype), memory::buffer_alignment);
}

// Operands that are one buffer in the program stay one.
class Placer {
  public:
    // `passes_on`: what is written leaves the device's caches for its memory in the end, near or not.
    Placer(std::array<std::int64_t, timing_places>& sizes, bool passes_on) : sizes_(&sizes), passes_on_(passes_on) {}

    PlacedOperand place(const Argument& argument) {
        for (const auto& [address, operand] : placed_)
            if (address == argument.address) return operand;
        const bool reads = argument.access == Access::read, likely_cached = argument.likely_cached;
        const TimingPlace where =
            reads && !is_floating(argument.type.dtype) ? TimingPlace::zeros
            : reads ? (likely_cached ? TimingPlace::cached_read : TimingPlace::uncached_read)
                    : (likely_cached && !passes_on_ ? TimingPlace::cached_written : TimingPlace::uncached_written);
        std::int64_t& size = (*sizes_)[static_cast<std::size_t>(where)];
        const PlacedOperand operand{where, size};
        size += span_of(argument);
        placed_.emplace_back(argument.address, operand);
        return operand;
    }

  private:
    std::array<std::int64_t, timing_places>* sizes_;
    bool passes_on_;
    std::vector<std::pair<Address, PlacedOperand>> placed_;
};

} // namespace

TimedStep prepare_timing(std::span<const TimingRequest> requests, const backend::Device& device, Bytes most_memory) {
    TimedStep all;
    std::map<std::string, std::optional<std::size_t>> known;
    for (const auto& [instruction, accumulate] : requests) {
        TimedKernel one{.key = costs::kernel_key(*instruction, accumulate)};
        const auto [found, is_new] = known.try_emplace(one.key);
        if (is_new) {
            Placer placer(one.sizes, device.asynchronous());
            for (const Argument& output : instruction->outputs) one.outputs.push_back(placer.place(output));
            for (const Argument& input : instruction->inputs) one.inputs.push_back(placer.place(input));
            if (std::reduce(one.sizes.begin(), one.sizes.end()) > most_memory.count) continue;
            one.kernel = runtime::prepare(device, *instruction, accumulate);
            found->second = all.kernels.size();
            all.kernels.push_back(std::move(one));
        }
        // What judges the norm of made-up gradients would make updates skip their work.
        if (found->second && instruction->kind != InstructionKind::finish_norm) all.order.push_back(*found->second);
    }
    return all;
}

KernelBench::KernelBench(std::span<const TimedKernel> kernels, const backend::Device& device, Bytes apart, Bytes room)
    : device_(device), queue_(device.make_queue()) {
    std::array<std::int64_t, timing_places> sizes{1, 1, 1, 1, 1};
    Bytes workspace{1};
    for (const TimedKernel& one : kernels) {
        for (std::size_t i = 0; i < timing_places; ++i) sizes[i] = std::max(sizes[i], one.sizes[i]);
        workspace = std::max(workspace, one.kernel->workspace());
    }
    const std::int64_t left = room.count - std::reduce(sizes.begin(), sizes.end()) - workspace.count;
    for (std::size_t i = 0; i < timing_places; ++i)
        if (is_far(static_cast<TimingPlace>(i))) sizes[i] = std::max(sizes[i], std::min(apart.count, left / 2));
    for (std::size_t i = 0; i < timing_places; ++i) {
        memory_[i] = device.allocate({sizes[i]});
        fill(*memory_[i], static_cast<TimingPlace>(i) != TimingPlace::zeros);
    }
    workspace_ = device.allocate(workspace);
    scalars_ = device.allocate({sizeof(StepScalars)});
}

void KernelBench::reset_scalars() {
    queue_->synchronize();
    const StepScalars scalars;
    device_.copy_in(scalars_->data(), std::as_bytes(std::span(&scalars, 1)));
}

void KernelBench::run(const TimedKernel& one) {
    bind(one);
    one.kernel->run({.inputs = inputs_,
                     .outputs = outputs_,
                     .workspace = workspace_->data(),
                     .scalars = reinterpret_cast<StepScalars*>(scalars_->data()),
                     .queue = queue_.get()});
}

double KernelBench::time(const TimedKernel& one) {
    reset_scalars();
    const Seconds begin = steady_now();
    run(one);
    queue_->synchronize();
    return steady_now().count - begin.count;
}

// Zeros, or numbers of up to a half: of 16 bits, and two of those make one of 32 bits that is as large.
void KernelBench::fill(const backend::Arena& arena, bool numbers) const {
    std::vector<std::uint16_t> block(1 << 19);
    for (std::size_t i = 0; numbers && i < block.size(); ++i)
        block[i] =
            narrow<std::uint16_t>(std::bit_cast<std::uint32_t>(uniform_from_bits(philox_draw({}, 0, i)) - 0.5f) >> 16);
    const auto bytes = std::as_bytes(std::span(block));
    const std::int64_t size = arena.size().count;
    std::int64_t filled = std::min(size, narrow<std::int64_t>(bytes.size()));
    device_.copy_in(arena.data(), bytes.first(static_cast<std::size_t>(filled)));
    for (std::int64_t next = 0; filled < size; filled += next) {
        next = std::min(filled, size - filled);
        queue_->copy_blocks(arena.data() + filled, next, arena.data(), next, next, 1);
    }
    queue_->synchronize();
}

void KernelBench::bind(const TimedKernel& one) {
    for (std::size_t i = 0; i < timing_places; ++i) {
        if (!is_far(static_cast<TimingPlace>(i))) continue;
        begin_[i] = end_[i] + one.sizes[i] > memory_[i]->size().count ? 0 : end_[i];
        end_[i] = begin_[i] + one.sizes[i];
    }
    auto at = [&](const PlacedOperand& operand) {
        const auto i = static_cast<std::size_t>(operand.place);
        return memory_[i]->data() + begin_[i] + operand.offset;
    };
    inputs_.clear();
    outputs_.clear();
    for (const PlacedOperand& operand : one.inputs) inputs_.push_back(at(operand));
    for (const PlacedOperand& operand : one.outputs) outputs_.push_back(at(operand));
}

} // namespace tutti::profiling

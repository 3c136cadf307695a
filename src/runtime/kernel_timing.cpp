#include "runtime/kernel_timing.h"

#include "base/checked.h"
#include "base/philox.h"
#include "comm/agree.h"
#include "comm/measure.h"
#include "memory/liveness.h"
#include "runtime/prepare.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

// Where an operand lies while a kernel is timed. What is near is always in the same place: a kernel before has just
// touched it. All else comes from a new place every time, as weights and stashes do. What is only read is never
// written: so numbers stay of a usual size (some kernels are quicker for zeros, and slower for tiny ones), and whole
// numbers stay zeros, which every table has.
enum class Place : std::uint8_t { near_read, near_written, far_read, far_written, zeros };
constexpr std::size_t places = 5;
constexpr bool is_far(Place place) { return place == Place::far_read || place == Place::far_written; }

constexpr int least_rounds = 3, most_rounds = 50;

struct PlacedOperand {
    Place place = Place::near_read;
    std::int64_t offset = 0;
};

struct TimedKernel {
    std::string key;
    std::unique_ptr<Kernel> kernel{};
    std::vector<PlacedOperand> inputs{}, outputs{};
    std::array<std::int64_t, places> sizes{};
    int row_length = 1;
    std::unique_ptr<Recording> row = nullptr; // of a device that works beside the host: several, one after the other
    std::vector<double> samples{};
};

std::int64_t span_of(const Argument& argument) {
    std::int64_t elements = 1;
    for (int i = 0; i < argument.type.shape.rank(); ++i) {
        if (argument.type.shape[i] == 0) return 0;
        elements += (argument.type.shape[i] - 1) * argument.strides[i];
    }
    return round_up(elements * size_of(argument.type.dtype), buffer_alignment);
}

// Operands that are one buffer in the program stay one.
class Placer {
  public:
    explicit Placer(std::array<std::int64_t, places>& sizes) : sizes_(&sizes) {}

    PlacedOperand place(const Argument& argument) {
        for (const auto& [address, operand] : placed_)
            if (address == argument.address) return operand;
        const bool reads = argument.access == Access::read, near = argument.near;
        const Place where = reads && !is_floating(argument.type.dtype) ? Place::zeros
                            : reads                                    ? (near ? Place::near_read : Place::far_read)
                                    : (near ? Place::near_written : Place::far_written);
        std::int64_t& size = (*sizes_)[static_cast<std::size_t>(where)];
        const PlacedOperand operand{where, size};
        size += span_of(argument);
        placed_.emplace_back(argument.address, operand);
        return operand;
    }

  private:
    std::array<std::int64_t, places>* sizes_;
    std::vector<std::pair<Address, PlacedOperand>> placed_;
};

// The kernels of a step.
std::vector<KernelWish> kernels_of(const Program& program) {
    std::vector<KernelWish> wishes;
    for (const Task& task : program.step) {
        if (task.segment < 0) continue;
        for (const Instruction& instruction : program.segments[static_cast<std::size_t>(task.segment)].instructions)
            if (instruction.lane != Lane::communication && is_run_by(instruction, task))
                wishes.push_back({&instruction, accumulates(instruction, task)});
    }
    return wishes;
}

std::vector<TimedKernel> prepared(std::span<const KernelWish> wishes, const Device& device, Bytes most_memory) {
    std::vector<TimedKernel> kernels;
    std::map<std::string, bool> known;
    for (const auto& [instruction, accumulate] : wishes) {
        TimedKernel one{.key = kernel_key(*instruction, accumulate)};
        if (!known.emplace(one.key, true).second) continue;
        Placer placer(one.sizes);
        for (const Argument& output : instruction->outputs) one.outputs.push_back(placer.place(output));
        for (const Argument& input : instruction->inputs) one.inputs.push_back(placer.place(input));
        if (std::reduce(one.sizes.begin(), one.sizes.end()) > most_memory.count) continue;
        one.kernel = prepare(device, *instruction, accumulate);
        kernels.push_back(std::move(one));
    }
    return kernels;
}

class Timing {
  public:
    // `apart`: how much memory kernels of a step touch before they come back to the same.
    Timing(std::vector<TimedKernel> kernels, const Device& device, Bytes apart)
        : kernels_(std::move(kernels)), device_(device), queue_(device.make_queue()), in_rows_(device.asynchronous()) {
        std::array<std::int64_t, places> sizes{1, 1, apart.count, apart.count, 1};
        Bytes workspace{1};
        for (const TimedKernel& one : kernels_) {
            for (std::size_t i = 0; i < places; ++i) sizes[i] = std::max(sizes[i], one.sizes[i]);
            workspace = std::max(workspace, one.kernel->workspace());
        }
        for (std::size_t i = 0; i < places; ++i) {
            memory_[i] = device.allocate({sizes[i]});
            fill(*memory_[i], static_cast<Place>(i) != Place::zeros);
        }
        workspace_ = device.allocate(workspace);
        scalars_ = device.allocate({sizeof(StepScalars)});
    }

    // Rows are as long as each other, so that the device works as hard as it does in a step, and gets as hot; and short
    // kernels have longer ones, beside which starting them is nothing.
    void choose_rows() {
        constexpr double all_rows = 0.15, short_row = 2.5e-3; // seconds
        std::vector<double> seconds;
        for (const TimedKernel& one : kernels_) seconds.push_back(std::max(time(one), 1e-7));
        const double usual = std::clamp(all_rows / std::reduce(seconds.begin(), seconds.end(), 1e-7), 8.0, 64.0);
        for (std::size_t i = 0; i < kernels_.size(); ++i)
            kernels_[i].row_length = static_cast<int>(std::max(usual, std::min(short_row / seconds[i], 512.0)));
    }
    bool in_rows() const { return in_rows_; }
    void warm_up() {
        for (TimedKernel& one : kernels_) time_row(one);
    }

    void round(bool counts) {
        for (TimedKernel& one : kernels_) {
            queue_->synchronize();
            // Anew: what a norm of made-up gradients leaves here would make the update skip its work.
            const StepScalars scalars;
            device_.copy_in(scalars_->data(), std::as_bytes(std::span(&scalars, 1)));
            const double seconds = counts && in_rows_ ? time_row(one) : time(one);
            if (counts) one.samples.push_back(seconds);
        }
    }

    TimedKernels result() {
        TimedKernels timed;
        for (TimedKernel& one : kernels_) {
            // Of a host the lower quartile: what others do on the machine makes some slower, and none faster.
            const auto usual =
                one.samples.begin() + static_cast<std::ptrdiff_t>(one.samples.size() / (in_rows_ ? 2 : 4));
            std::ranges::nth_element(one.samples, usual);
            timed.times.seconds.emplace(one.key, *usual);
            timed.workspace.emplace(one.key, one.kernel->workspace());
        }
        return timed;
    }

  private:
    // Zeros, or numbers of up to a half: of 16 bits, and two of those make one of 32 bits that is as large.
    void fill(const Arena& arena, bool numbers) const {
        std::vector<std::uint16_t> block(1 << 19);
        for (std::size_t i = 0; numbers && i < block.size(); ++i)
            block[i] = narrow<std::uint16_t>(
                std::bit_cast<std::uint32_t>(uniform_from_bits(philox_draw({}, 0, i)) - 0.5f) >> 16);
        const auto bytes = std::as_bytes(std::span(block));
        for (std::int64_t at = 0; at < arena.size().count; at += narrow<std::int64_t>(bytes.size())) {
            const auto left = static_cast<std::size_t>(arena.size().count - at);
            device_.copy_in(arena.data() + at, bytes.first(std::min(bytes.size(), left)));
        }
    }

    double time(const TimedKernel& one) {
        bind(one);
        const Seconds begin = steady_now();
        run(one);
        queue_->synchronize();
        return steady_now().count - begin.count;
    }

    // As training gives them to a device: recorded, so that the host's time does not count, and close together.
    double time_row(TimedKernel& one) {
        auto work = [&] {
            for (int i = 0; i < one.row_length; ++i) {
                bind(one);
                run(one);
            }
        };
        if (!one.row) one.row = queue_->record(work);
        queue_->synchronize();
        const Seconds begin = steady_now();
        if (one.row)
            queue_->replay(*one.row);
        else
            work();
        queue_->synchronize();
        return (steady_now().count - begin.count) / one.row_length;
    }

    void run(const TimedKernel& one) {
        one.kernel->run({.inputs = inputs_,
                         .outputs = outputs_,
                         .workspace = workspace_->data(),
                         .scalars = reinterpret_cast<StepScalars*>(scalars_->data()),
                         .queue = queue_.get()});
    }

    void bind(const TimedKernel& one) {
        for (std::size_t i = 0; i < places; ++i) {
            if (!is_far(static_cast<Place>(i))) continue;
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

    std::vector<TimedKernel> kernels_;
    const Device& device_;
    std::unique_ptr<Queue> queue_;
    bool in_rows_;
    std::array<std::unique_ptr<Arena>, places> memory_;
    std::unique_ptr<Arena> workspace_, scalars_;
    std::array<std::int64_t, places> begin_{}, end_{}; // of what the kernel at hand has of each
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
};

} // namespace

TimedKernels time_kernels(std::span<const KernelWish> wishes, const Device& device, Group& all, Bytes apart,
                          Seconds lasting, Bytes most_memory) {
    if (const auto memory = device.memory()) most_memory = std::min(most_memory, Bytes{memory->free.count / 8 + 1});
    Timing timing(prepared(wishes, device, most_memory), device,
                  std::clamp(apart, Bytes{1}, std::min(beyond_caches, most_memory)));
    timing.round(false); // in the first, libraries may load what they need
    if (timing.in_rows()) {
        constexpr Seconds until_hot{0.8};
        timing.choose_rows();
        for (const Seconds start = steady_now(); steady_now().count - start.count < until_hot.count;) timing.warm_up();
    }
    barrier(all);
    const Seconds begin = steady_now();
    auto goes_on = [&](int round) {
        return round < least_rounds || (round < most_rounds && steady_now().count - begin.count < lasting.count);
    };
    for (int round = 0; goes_on(round); ++round) timing.round(true);
    barrier(all); // what is measured next would disturb those that are not done
    return timing.result();
}

KernelTimes time_kernels(const Program& program, const Device& device, Group& all, Seconds lasting, Bytes most_memory) {
    const Bytes apart = chunk_bytes(program, Region::weights) + chunk_bytes(program, Region::gradients);
    return time_kernels(kernels_of(program), device, all, apart, lasting, most_memory).times;
}

} // namespace tutti

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
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
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

struct PlacedOperand {
    Place place = Place::near_read;
    std::int64_t offset = 0;
};

struct TimedKernel {
    std::string key;
    std::unique_ptr<Kernel> kernel{};
    std::vector<PlacedOperand> inputs{}, outputs{};
    std::array<std::int64_t, places> sizes{};
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
    // `passes_on`: what is written leaves the device's caches for its memory in the end, near or not.
    Placer(std::array<std::int64_t, places>& sizes, bool passes_on) : sizes_(&sizes), passes_on_(passes_on) {}

    PlacedOperand place(const Argument& argument) {
        for (const auto& [address, operand] : placed_)
            if (address == argument.address) return operand;
        const bool reads = argument.access == Access::read, near = argument.near;
        const Place where = reads && !is_floating(argument.type.dtype) ? Place::zeros
                            : reads                                    ? (near ? Place::near_read : Place::far_read)
                                    : (near && !passes_on_ ? Place::near_written : Place::far_written);
        std::int64_t& size = (*sizes_)[static_cast<std::size_t>(where)];
        const PlacedOperand operand{where, size};
        size += span_of(argument);
        placed_.emplace_back(argument.address, operand);
        return operand;
    }

  private:
    std::array<std::int64_t, places>* sizes_;
    bool passes_on_;
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

struct Prepared {
    std::vector<TimedKernel> kernels{};
    std::vector<std::size_t> order{}; // in which a step has them, each as often as it does
};

Prepared prepared(std::span<const KernelWish> wishes, const Device& device, Bytes most_memory) {
    Prepared all;
    std::map<std::string, std::optional<std::size_t>> known;
    for (const auto& [instruction, accumulate] : wishes) {
        TimedKernel one{.key = kernel_key(*instruction, accumulate)};
        const auto [found, is_new] = known.try_emplace(one.key);
        if (is_new) {
            Placer placer(one.sizes, device.asynchronous());
            for (const Argument& output : instruction->outputs) one.outputs.push_back(placer.place(output));
            for (const Argument& input : instruction->inputs) one.inputs.push_back(placer.place(input));
            if (std::reduce(one.sizes.begin(), one.sizes.end()) > most_memory.count) continue;
            one.kernel = prepare(device, *instruction, accumulate);
            found->second = all.kernels.size();
            all.kernels.push_back(std::move(one));
        }
        // What judges the norm of made-up gradients would make updates skip their work.
        if (found->second && instruction->op != "finish_norm") all.order.push_back(*found->second);
    }
    return all;
}

double sample_at(std::vector<double>& samples, std::size_t part) {
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / part);
    std::ranges::nth_element(samples, at);
    return *at;
}
// Of a host the lower quartile: what others do on the machine makes some slower, and none faster.
double lower_quartile(std::vector<double>& samples) { return sample_at(samples, 4); }
double median(std::vector<double>& samples) { return sample_at(samples, 2); }

// Memory for kernels, and a queue to run them on.
class Bench {
  public:
    // `apart`: how much memory kernels of a step touch before they come back to the same.
    Bench(std::span<const TimedKernel> kernels, const Device& device, Bytes apart)
        : device_(device), queue_(device.make_queue()) {
        std::array<std::int64_t, places> sizes{1, 1, apart.count, apart.count, 1};
        Bytes workspace{1};
        for (const TimedKernel& one : kernels) {
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

    Queue& queue() { return *queue_; }

    void reset_scalars() {
        queue_->synchronize();
        const StepScalars scalars;
        device_.copy_in(scalars_->data(), std::as_bytes(std::span(&scalars, 1)));
    }

    void run(const TimedKernel& one) {
        bind(one);
        one.kernel->run({.inputs = inputs_,
                         .outputs = outputs_,
                         .workspace = workspace_->data(),
                         .scalars = reinterpret_cast<StepScalars*>(scalars_->data()),
                         .queue = queue_.get()});
    }

    double time(const TimedKernel& one) {
        reset_scalars();
        const Seconds begin = steady_now();
        run(one);
        queue_->synchronize();
        return steady_now().count - begin.count;
    }

  private:
    // Zeros, or numbers of up to a half: of 16 bits, and two of those make one of 32 bits that is as large.
    void fill(const Arena& arena, bool numbers) const {
        std::vector<std::uint16_t> block(1 << 19);
        for (std::size_t i = 0; numbers && i < block.size(); ++i)
            block[i] = narrow<std::uint16_t>(
                std::bit_cast<std::uint32_t>(uniform_from_bits(philox_draw({}, 0, i)) - 0.5f) >> 16);
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

    const Device& device_;
    std::unique_ptr<Queue> queue_;
    std::array<std::unique_ptr<Arena>, places> memory_;
    std::unique_ptr<Arena> workspace_, scalars_;
    std::array<std::int64_t, places> begin_{}, end_{}; // of what the kernel at hand has of each
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
};

// A device that works beside the host. Its kernels are given to it as training does: recorded, so that the host's time
// does not count, and close together. How fast they are depends on what the device has done just before: at its limit
// of power, or with caches full of something else, products take up to a quarter longer. So a row of one kernel is
// timed right behind a piece of the step; and what the rows of a step's kernels take together is held against the step.
class StepTiming {
  public:
    StepTiming(Prepared& all, Bench& bench) : all_(all), bench_(bench) {
        constexpr double of_row = 5e-3, of_piece = 12e-3, of_step = 0.4; // seconds
        std::vector<double> seconds;
        for (const TimedKernel& one : all.kernels) seconds.push_back(std::max(bench.time(one), 1e-6));
        for (std::size_t i = 0; i < seconds.size(); ++i) {
            const auto length = static_cast<std::size_t>(std::clamp(of_row / seconds[i], 2.0, 512.0));
            rows_.push_back(recorded(std::vector(length, i)));
        }
        double step = 0;
        while (!all.order.empty() && step < of_piece) { // once or, if it is short, again
            std::vector<std::size_t> piece;
            double sum = 0;
            for (const std::size_t kernel : all.order) {
                piece.push_back(kernel);
                sum += seconds[kernel];
                if (sum < of_piece) continue;
                pieces_.push_back(recorded(std::exchange(piece, {})));
                step += std::exchange(sum, 0);
                if (step > of_step) break;
            }
            if (!piece.empty()) pieces_.push_back(recorded(std::move(piece)));
            step += sum;
        }
        heat();
    }

    void round() {
        steps_.push_back(time_step());
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const double row = time([&] { give(rows_[i]); });
            all_.kernels[i].samples.push_back(row / static_cast<double>(rows_[i].kernels.size()));
        }
    }

    std::vector<double> result() {
        std::vector<double> seconds;
        for (TimedKernel& one : all_.kernels) seconds.push_back(median(one.samples));
        double rows = 0;
        for (const Recorded& piece : pieces_)
            for (const std::size_t kernel : piece.kernels) rows += seconds[kernel];
        if (rows > 0)
            for (const double factor = median(steps_) / rows; double& one : seconds) one *= factor;
        return seconds;
    }

  private:
    struct Recorded {
        std::vector<std::size_t> kernels{};
        std::unique_ptr<Recording> recording = nullptr;
    };

    Recorded recorded(std::vector<std::size_t> kernels) {
        return {kernels, bench_.queue().record([&] { run(kernels); })};
    }
    void run(std::span<const std::size_t> kernels) {
        for (const std::size_t kernel : kernels) bench_.run(all_.kernels[kernel]);
    }
    void give(const Recorded& one) {
        if (!one.recording) return run(one.kernels);
        bench_.queue().replay(*one.recording);
    }
    void give_piece() {
        if (!pieces_.empty()) give(pieces_[next_++ % pieces_.size()]);
    }

    // Until the step takes no longer than it did before: a device that has been idle is faster.
    void heat() {
        if (pieces_.empty()) return;
        constexpr double stretch = 0.25, at_most = 3; // seconds
        const Seconds start = steady_now();
        for (double before = 0;;) {
            double now = 0;
            int count = 0;
            for (const Seconds begin = steady_now(); steady_now().count - begin.count < stretch; ++count)
                now += time_step();
            now /= count;
            if (now < 1.003 * before || steady_now().count - start.count > at_most) return;
            before = now;
        }
    }

    double time_step() {
        return time([&] {
            for (std::size_t i = 0; i < pieces_.size(); ++i) give_piece();
        });
    }

    // Right behind a piece of the step.
    double time(const std::function<void()>& work) {
        Seconds begin, end;
        bench_.reset_scalars();
        give_piece();
        bench_.queue().note_time(begin);
        work();
        bench_.queue().note_time(end);
        bench_.queue().synchronize();
        return end.count - begin.count;
    }

    Prepared& all_;
    Bench& bench_;
    std::vector<Recorded> rows_; // of every kernel
    std::vector<Recorded> pieces_;
    std::size_t next_ = 0;
    std::vector<double> steps_;
};

// `round` three times, and more while there is time.
void repeat(Group& all, Seconds lasting, const std::function<void()>& round) {
    constexpr int least = 3, most = 50;
    barrier(all);
    const Seconds begin = steady_now();
    auto goes_on = [&](int rounds) {
        return rounds < least || (rounds < most && steady_now().count - begin.count < lasting.count);
    };
    for (int rounds = 0; goes_on(rounds); ++rounds) round();
    barrier(all); // what is measured next would disturb those that are not done
}

} // namespace

TimedKernels time_kernels(std::span<const KernelWish> wishes, const Device& device, Group& all, Bytes apart,
                          Seconds lasting, Bytes most_memory) {
    if (const auto memory = device.memory()) most_memory = std::min(most_memory, Bytes{memory->free.count / 8 + 1});
    Prepared kernels = prepared(wishes, device, most_memory);
    // Addresses, too, are looked up in caches: a device reaches far more memory than theirs in a step.
    const Bytes room = device.asynchronous() ? most_memory : std::min(beyond_caches, most_memory);
    Bench bench(kernels.kernels, device, std::clamp(apart, Bytes{1}, room));
    for (const TimedKernel& one : kernels.kernels) bench.time(one); // the first time, libraries load what they need
    std::vector<double> seconds;
    if (device.asynchronous()) {
        StepTiming timing(kernels, bench);
        repeat(all, lasting, [&] { timing.round(); });
        seconds = timing.result();
    } else {
        repeat(all, lasting, [&] {
            for (TimedKernel& one : kernels.kernels) one.samples.push_back(bench.time(one));
        });
        for (TimedKernel& one : kernels.kernels) seconds.push_back(lower_quartile(one.samples));
    }
    TimedKernels timed;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        timed.times.seconds.emplace(kernels.kernels[i].key, seconds[i]);
        timed.workspace.emplace(kernels.kernels[i].key, kernels.kernels[i].kernel->workspace());
    }
    return timed;
}

KernelTimes time_kernels(const Program& program, const Device& device, Group& all, Seconds lasting, Bytes most_memory) {
    const Bytes apart = chunk_bytes(program, Region::weights) + chunk_bytes(program, Region::gradients);
    return time_kernels(kernels_of(program), device, all, apart, lasting, most_memory).times;
}

} // namespace tutti

#include "profiling/offload_timing.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "comm/agree.h"
#include "profiling/disk_speed.h"
#include "profiling/kernel_speed.h"
#include "simulate/outline.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace tutti::profiling {
namespace {

backend::KernelRequest update_of(std::int64_t count, const Precision& precision) {
    auto operand = [&](DType dtype) { return backend::Operand{{dtype, {count}}, {1}}; };
    backend::KernelRequest request{
        .op = "adamw",
        .attributes = {{"ranges", std::vector<std::int64_t>{0, count, 1}}},
        .inputs = {operand(precision.gradients)},
        .outputs = {operand(precision.compute), operand(precision.moments), operand(precision.moments)},
        .source = "speed"};
    if (precision.rounds_weights() || precision.rounds_moments())
        request.attributes.set("streams", std::vector<std::int64_t>{1});
    if (precision.compute != precision.gradients)
        request.attributes.set("weights", std::string(name_of(precision.compute)));
    if (precision.moments != precision.gradients)
        request.attributes.set("moments", std::string(name_of(precision.moments)));
    if (precision.has_master()) {
        request.attributes.set("master", true);
        request.outputs.push_back(operand(precision.master));
    }
    return request;
}

// Copies to the device and from it.
class Copying {
  public:
    Copying(const backend::Device& device, std::int64_t bytes)
        : bytes_(bytes), host_(device.allocate_staging({2 * bytes})), memory_(device.allocate({2 * bytes})),
          in_(device.make_copy_queue()), out_(device.make_copy_queue()) {}

    std::int64_t bytes() const { return bytes_; } // each way
    void give_in() { in_->copy_in(memory_->data(), {host_->data(), static_cast<std::size_t>(bytes_)}); }
    void give_out() {
        out_->copy_out({host_->data() + bytes_, static_cast<std::size_t>(bytes_)}, memory_->data() + bytes_);
    }
    void give() {
        give_in();
        give_out();
    }
    void finish() {
        in_->synchronize();
        out_->synchronize();
    }
    // So many of either, one after the other each way.
    CopySeconds time(int ins, int outs) {
        Seconds in, out;
        const Seconds begin = steady_now();
        for (int i = 0; i < std::max(ins, outs); ++i) {
            if (i < ins) give_in();
            if (i < outs) give_out();
        }
        in_->note_time(in);
        out_->note_time(out);
        finish();
        return {std::max(in.count - begin.count, 1e-6), std::max(out.count - begin.count, 1e-6)};
    }

  private:
    std::int64_t bytes_;
    std::unique_ptr<backend::Arena> host_, memory_;
    std::unique_ptr<backend::Queue> in_, out_;
};

// Bytes of operands per second, each counted once, that the host's AdamW goes through while others are copied: in so
// much memory that none of it is found in a cache.
double time_update(const backend::Device& host, const Precision& precision, Bytes room, Copying& copying) {
    const std::int64_t count = std::clamp<std::int64_t>(room.count / 64, 1 << 16, 1 << 26);
    const backend::KernelRequest request = update_of(count, precision);
    const std::unique_ptr<backend::Kernel> kernel = host.prepare(request);
    Bytes bytes = request.inputs[0].type.bytes();
    for (const backend::Operand& output : request.outputs) bytes += output.type.bytes();
    const auto memory = host.allocate(bytes), workspace = host.allocate(kernel->workspace() + Bytes{1});
    const std::byte* const in = memory->data();
    std::vector<std::byte*> out;
    std::int64_t at = request.inputs[0].type.bytes().count;
    for (const backend::Operand& output : request.outputs) {
        out.push_back(memory->data() + at);
        at += output.type.bytes().count;
    }
    StepScalars scalars{.learning_rate = 1e-4};
    double best = 1e9;
    for (int i = 0; i < 3; ++i) { // the first touches the memory
        for (std::int64_t copied = 0; copied < bytes.count; copied += copying.bytes()) copying.give();
        const Seconds begin = steady_now();
        kernel->run({.inputs = {&in, 1}, .outputs = out, .workspace = workspace->data(), .scalars = &scalars});
        if (i > 0) best = std::min(best, steady_now().count - begin.count);
        copying.finish();
    }
    return static_cast<double>(bytes.count) / std::max(best, 1e-9);
}

std::int64_t copy_size(Bytes room) { return std::clamp<std::int64_t>(room.count / 8, 1 << 20, 32 << 20); }

double slowest_of(comm::World& world, double speed) {
    if (world.size() == 1) return speed;
    double seconds = 1 / speed;
    comm::Group& all = world.all();
    all.wait(all.all_reduce(std::as_writable_bytes(std::span(&seconds, 1)), DType::float64, Combine::maximum));
    return 1 / seconds;
}

// Without kernels, which come when they are asked for.
costs::CostProfile profile_of(const backend::Device& device, comm::World& world, DType compute,
                              const KernelSpeed& speed) {
    const auto own = device.memory();
    return {.machine = {.device = device.name(), .model = device.model()},
            .ranks = world.size(),
            .memory = own ? own->total : machine_memory(),
            .speed = speed,
            .dtype = compute};
}

KernelSpeed slowest_kernels(const backend::Device& device, comm::World& world, DType compute, Bytes room) {
    const KernelSpeed mine = measure_kernels(device, compute, room);
    return {slowest_of(world, mine.flops), slowest_of(world, mine.bytes), 1 / slowest_of(world, 1 / mine.launch)};
}

} // namespace

OffloadTiming::OffloadTiming(const backend::Device& device, const backend::Device& host, comm::World& world,
                             DType compute, Bytes room, const offload::SpeedTable* table,
                             std::function<void(const std::string&)> tell)
    : device_(device), host_(host), world_(world), table_(table ? std::optional(*table) : std::nullopt),
      copies_(table ? table->host : time_copies(room)),
      costs_(profile_of(device, world, compute, table ? table->kernels : slowest_kernels(device, world, compute, room)),
             device, world, {.apart = room, .most_memory = room, .tell = std::move(tell)}) {
    if (!table) return;
    disk_ = table->disk;
    update_ = table->updates;
}

CopySpeed OffloadTiming::slowest(CopySpeed speed) const {
    for (double* one : {&speed.in, &speed.out, &speed.together}) *one = slowest_of(world_, *one);
    return speed;
}

CopySpeed OffloadTiming::time_copies(Bytes room) const {
    constexpr int row = 4; // so that starting and ending them hardly counts
    Copying copying(device_, copy_size(room));
    CopySeconds alone{1e9, 1e9}, at_once{1e9, 1e9};
    auto less = [](const CopySeconds& a, const CopySeconds& b) {
        return CopySeconds{std::min(a.in, b.in), std::min(a.out, b.out)};
    };
    copying.time(1, 1); // the first touches the memory
    for (int i = 0; i < 2; ++i) {
        alone = less(alone, {copying.time(row, 0).in, copying.time(0, row).out});
        at_once = less(at_once, copying.time(row, row));
    }
    return slowest(copy_speed(static_cast<double>(row * copying.bytes()), alone, at_once, 1e-5));
}

double OffloadTiming::copied_bytes() const { return std::min(copies_.in, copies_.out); }

std::string OffloadTiming::time_disk(const fs::path& folder, Bytes room, offload::OffloadSpeed& speed) {
    if (!disk_ && why_no_disk_.empty()) {
        CopySpeed mine;
        try {
            mine = measure_disk(folder, room);
        } catch (const std::runtime_error& error) {
            why_no_disk_ = error.what();
        }
        mine = slowest(mine);
        const std::vector<char> timed = comm::gather_values(world_.all(), static_cast<char>(why_no_disk_.empty()));
        if (std::ranges::find(timed, char{0}) == timed.end()) disk_ = mine;
    }
    speed.disk = disk_;
    return why_no_disk_;
}

offload::OffloadSpeed OffloadTiming::of(const Program& program, const Precision& precision, Bytes room) {
    if (!table_) costs_.expect(program);
    if (!update_) {
        Copying copying(device_, copy_size(room));
        update_ = slowest_of(world_, time_update(host_, precision, room, copying));
    }
    auto seconds = [this](const Instruction& instruction, const Task& task) {
        if (instruction.lane == Lane::host)
            return static_cast<double>(simulate::bytes_of(instruction).count) / *update_;
        // Communication overlaps with computation: only its traffic through the device's memory counts.
        if (instruction.lane == Lane::communication)
            return static_cast<double>(simulate::bytes_of(instruction).count) / costs_.profile().speed.bytes;
        return accumulates(instruction, task) ? costs_.kernel_seconds(instruction, 0)
                                              : costs_.first_kernel_seconds(instruction, 0);
    };
    return {.seconds = seconds, .host = copies_, .updates = *update_};
}

} // namespace tutti::profiling

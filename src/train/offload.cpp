#include "train/offload.h"

#include "base/checked.h"
#include "base/error.h"
#include "comm/measure.h"
#include "memory/liveness.h"
#include "train/update_places.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace tutti {
namespace {

StepMoments with_limits(StepMoments step, Bytes capacity, const OffloadLimits& limits, const OffloadSpeed& speed) {
    step.problem.capacity = std::max(capacity, Bytes{});
    step.problem.in = speed.in;
    step.problem.out = speed.out;
    step.problem.eviction = limits.eviction;
    step.problem.ahead = limits.prefetch;
    return step;
}

// As one may give it, and never too little.
std::string rounded_up(Bytes bytes) {
    const bool large = bytes.count >> 26 > 0;
    const std::int64_t unit = large ? 1 << 20 : 1 << 10;
    return fmt::format("{}{}", (bytes.count + unit - 1) / unit, large ? "MiB" : "KiB");
}

[[noreturn]] void fail_too_small(const OffloadLimits& limits, Bytes enough) {
    fail("device_memory is {}, and activations, buffers and workspace take {}: for the parts of the model that a "
         "step works on at a time too little is left. The least that works is {}; a smaller micro-batch, --recompute "
         "full or --offload-activations full needs less",
         to_string(limits.device + limits.beside), to_string(limits.beside), rounded_up(limits.beside + enough));
}

// Chunks whose states do not stay on the device.
std::vector<std::int32_t> passing(const OffloadPlan& plan, const std::vector<std::int32_t>& chunks) {
    std::set<std::int32_t> leaving;
    for (const Stay& stay : plan.training.residency.stays) {
        const ChunkResident& resident = plan.training.step.residents[static_cast<std::size_t>(stay.resident)];
        const bool is_state = resident.region != Region::weights && resident.region != Region::gradients;
        if (is_state && !stay.always) leaving.insert(resident.chunk);
    }
    std::vector<std::int32_t> result;
    std::ranges::copy_if(chunks, std::back_inserter(result), [&](std::int32_t c) { return leaving.contains(c); });
    return result;
}

class Planning {
  public:
    Planning(Program& training, const OffloadLimits& limits, const OffloadSpeed& speed)
        : training_(training), limits_(limits), speed_(speed), updates_(training) {}

    OffloadPlan plan() {
        std::vector<std::int32_t> able;
        for (std::int32_t chunk : updates_.chunks())
            if (!limits_.only_on_device || !limits_.only_on_device(chunk)) able.push_back(chunk);
        if (limits_.placement == OptimizerPlacement::host) {
            attempt(able);
        } else {
            attempt({});
            if (limits_.placement == OptimizerPlacement::automatic) try_shares(best_ ? passing(*best_, able) : able);
        }
        if (limits_.updates == UpdateTime::automatic && best_) attempt({on_host_.begin(), on_host_.end()}, true);
        if (!best_ && why_not_) std::rethrow_exception(why_not_);
        if (!best_) {
            Bytes enough = enough_capacity(too_small_.front());
            for (const ResidencyProblem& other : too_small_) enough = std::min(enough, enough_capacity(other));
            fail_too_small(limits_, enough);
        }
        updates_.place(on_host_, best_->updates_later > 0);
        verify(training_);
        return std::move(*best_);
    }

  private:
    // The last ones go to the host: it has until the next forward comes to them.
    void try_shares(const std::vector<std::int32_t>& candidates) {
        if (candidates.empty()) return;
        for (const std::size_t quarters : {4, 2, 1, 3}) {
            const std::size_t count = (candidates.size() * quarters + 3) / 4;
            attempt({candidates.end() - static_cast<std::ptrdiff_t>(count), candidates.end()});
        }
    }

    void attempt(const std::vector<std::int32_t>& chunks, bool later = false) {
        const std::set<std::int32_t> on_host(chunks.begin(), chunks.end());
        if (best_ && !later && on_host == on_host_) return;
        const int left = updates_.place(on_host, later || limits_.updates == UpdateTime::next);
        if (later && left == 0) return;
        OffloadPlan plan{
            .training = {with_limits(moments_of(training_, speed_.seconds), limits_.device, limits_, speed_), {}},
            .updates = narrow<std::int32_t>(updates_.chunks().size()),
            .updates_at_home = narrow<std::int32_t>(on_host.size()),
            .updates_later = left};
        try {
            plan.training.residency = plan_residency(plan.training.step.problem);
        } catch (const Error&) {
            too_small_.push_back(std::move(plan.training.step.problem));
            return;
        }
        // Measured speeds are not so exact that less would count.
        constexpr double gain = 0.99;
        if (best_ && plan.training.residency.seconds > gain * best_->training.residency.seconds) return;
        try {
            plan.homes = plan_homes(plan.training.step, plan.training.residency, limits_.host, limits_.has_disk);
        } catch (const Error&) {
            if (!why_not_) why_not_ = std::current_exception();
            return;
        }
        best_ = std::move(plan);
        on_host_ = on_host;
    }

    Program& training_;
    const OffloadLimits& limits_;
    const OffloadSpeed& speed_;
    UpdatePlaces updates_;
    std::optional<OffloadPlan> best_;
    std::set<std::int32_t> on_host_;
    std::exception_ptr why_not_;              // of homes
    std::vector<ResidencyProblem> too_small_; // attempts that the device has too little memory for
};

} // namespace

OffloadPlan plan_offload(Program& training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed) {
    OffloadPlan plan = Planning(training, limits, speed).plan();
    plan.device = plan.training.residency.memory;
    for (const Stay& stay : plan.training.residency.stays)
        if (stay.always)
            plan.always = std::max(
                plan.always,
                {round_up(stay.offset +
                              plan.training.step.problem.residents[static_cast<std::size_t>(stay.resident)].count,
                          buffer_alignment)});
    if (evaluation == nullptr) return plan;
    auto stays = [&](const ChunkResident& resident) {
        const auto& residents = plan.homes.residents;
        const auto at = std::ranges::find(residents, resident);
        return at != residents.end() &&
               plan.homes.homes[static_cast<std::size_t>(at - residents.begin())].tier == Home::Tier::device;
    };
    plan.evaluation = {
        with_limits(moments_of(*evaluation, speed.seconds, stays), limits.device - plan.always, limits, speed), {}};
    try {
        plan.evaluation->residency = plan_residency(plan.evaluation->step.problem);
    } catch (const Error&) {
        fail_too_small(limits, plan.always + enough_capacity(plan.evaluation->step.problem));
    }
    plan.device = std::max(plan.device, plan.always + plan.evaluation->residency.memory);
    return plan;
}

OffloadSpeed measure_copies(const Device& device, Bytes room) {
    const std::int64_t bytes = std::clamp<std::int64_t>(room.count / 2, 1 << 20, 32 << 20);
    const auto host = device.allocate_staging({bytes}), memory = device.allocate({bytes});
    const auto queue = device.make_copy_queue();
    const std::span<std::byte> all(host->data(), static_cast<std::size_t>(bytes));
    auto speed_of = [&](const std::function<void()>& copy) {
        double best = 1e9;
        for (int i = 0; i < 3; ++i) {
            const Seconds begin = steady_now();
            copy();
            queue->synchronize();
            if (i > 0) best = std::min(best, steady_now().count - begin.count);
        }
        return LinkSpeed{.latency = 1e-5, .bytes = static_cast<double>(bytes) / std::max(best, 1e-6)};
    };
    OffloadSpeed speed;
    speed.in = speed_of([&] { queue->copy_in(memory->data(), all); });
    speed.out = speed_of([&] { queue->copy_out(all, memory->data()); });
    return speed;
}

namespace {

KernelRequest update_of(std::int64_t count, const Precision& precision) {
    auto operand = [&](DType dtype) { return Operand{{dtype, {count}}, {1}}; };
    KernelRequest request{
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

} // namespace

double measure_update(const Device& device, const Precision& precision, Bytes room) {
    constexpr double long_enough = 0.004; // seconds
    double speed = 0;
    for (std::int64_t count = 1 << 16; count <= 1 << 24; count *= 4) {
        const KernelRequest request = update_of(count, precision);
        const std::unique_ptr<Kernel> kernel = device.prepare(request);
        Bytes bytes = request.inputs[0].type.bytes();
        for (const Operand& output : request.outputs) bytes += output.type.bytes();
        if (speed > 0 && bytes > room) break;
        const auto memory = device.allocate(bytes);
        const std::byte* const in = memory->data();
        std::vector<std::byte*> out;
        std::int64_t at = request.inputs[0].type.bytes().count;
        for (const Operand& output : request.outputs) {
            out.push_back(memory->data() + at);
            at += output.type.bytes().count;
        }
        StepScalars scalars{.learning_rate = 1e-4};
        double best = 1e9;
        for (int i = 0; i < 3; ++i) { // the first touches the memory
            const Seconds begin = steady_now();
            kernel->run({.inputs = {&in, 1}, .outputs = out, .scalars = &scalars});
            if (i > 0) best = std::min(best, steady_now().count - begin.count);
        }
        speed = static_cast<double>(bytes.count) / std::max(best, 1e-9);
        if (best >= long_enough) break;
    }
    return speed;
}

Offload::Offload(const Device& device, const OffloadPlan& plan, std::byte* chunks, const fs::path& disk, int rank)
    : device_(&device), plan_(&plan), chunks_(chunks), homes_(device, plan.homes, chunks, disk, rank) {}

void Offload::attach(ModelData& data) {
    const OffloadPlan::Part& part = plan_->training;
    training_ = std::make_unique<Residence>(part.step, part.residency, *device_, homes_, data, chunks_);
    if (plan_->evaluation)
        evaluation_ = std::make_unique<Residence>(plan_->evaluation->step, plan_->evaluation->residency, *device_,
                                                  homes_, data, chunks_ + plan_->always.count);
}

std::optional<std::string> Offload::slow_disk() const {
    Bytes moved;
    const OffloadPlan::Part& part = plan_->training;
    for (const Stay& stay : part.residency.stays) {
        const auto r = static_cast<std::size_t>(stay.resident);
        if (plan_->homes.homes[r].tier == Home::Tier::disk)
            moved += static_cast<std::int64_t>(stay.fetched + stay.returned) * part.step.problem.residents[r];
    }
    if (moved.count == 0) return std::nullopt;
    const double speed = homes_.file().write_speed();
    const Seconds needed{static_cast<double>(moved.count) / speed};
    if (needed.count <= part.residency.seconds) return std::nullopt;
    return fmt::format(
        "{} of a step's model data go to or come from {}, which writes {} per second: that takes {}, and "
        "the rest of the step {}",
        to_string(moved), homes_.file().path().parent_path().string(),
        to_string(Bytes{static_cast<std::int64_t>(speed)}), to_string(needed),
        to_string(Seconds{part.residency.seconds}));
}

} // namespace tutti

#include "train/offload.h"

#include "base/checked.h"
#include "base/error.h"
#include "comm/measure.h"
#include "memory/liveness.h"

#include <algorithm>

namespace tutti {
namespace {

OffloadPlan::Part plan_part(StepMoments step, Bytes capacity, const OffloadSpeed& speed) {
    step.problem.capacity = capacity;
    step.problem.in = speed.in;
    step.problem.out = speed.out;
    ResidencyPlan residency = plan_residency(step.problem);
    return {std::move(step), std::move(residency)};
}

} // namespace

OffloadPlan plan_offload(const Program& training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed) {
    OffloadPlan plan{.training = plan_part(moments_of(training, speed.seconds), limits.device, speed)};
    plan.homes = plan_homes(plan.training.step, plan.training.residency, limits.host, limits.has_disk);
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
    plan.evaluation = plan_part(moments_of(*evaluation, speed.seconds, stays), limits.device - plan.always, speed);
    plan.device = std::max(plan.device, plan.always + plan.evaluation->residency.memory);
    return plan;
}

OffloadSpeed measure_copies(const Device& device) {
    constexpr std::int64_t bytes = 32 << 20;
    const auto host = device.allocate_staging({bytes}), memory = device.allocate({bytes});
    const auto queue = device.make_copy_queue();
    const std::span<std::byte> all(host->data(), bytes);
    auto speed_of = [&](const std::function<void()>& copy) {
        double best = 1e9;
        for (int i = 0; i < 3; ++i) {
            const Seconds begin = steady_now();
            copy();
            queue->synchronize();
            if (i > 0) best = std::min(best, steady_now().count - begin.count);
        }
        return LinkSpeed{.latency = 1e-5, .bytes = bytes / std::max(best, 1e-6)};
    };
    OffloadSpeed speed;
    speed.in = speed_of([&] { queue->copy_in(memory->data(), all); });
    speed.out = speed_of([&] { queue->copy_out(all, memory->data()); });
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

} // namespace tutti

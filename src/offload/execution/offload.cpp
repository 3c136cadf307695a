#include "offload/execution/offload.h"

namespace tutti::offload {

Offload::Offload(const backend::Device& device, const OffloadPlan& plan, std::byte* chunks, const fs::path& disk)
    : device_(&device), plan_(&plan), chunks_(chunks), backing_(device, plan.backing, chunks, disk) {}

void Offload::attach(ModelData& data) {
    const OffloadPlan::Part& part = plan_->training;
    training_ = std::make_unique<Residence>(part.step, part.residency, *device_, backing_, data, chunks_);
    if (plan_->evaluation)
        evaluation_ = std::make_unique<Residence>(plan_->evaluation->step, plan_->evaluation->residency, *device_,
                                                  backing_, data, chunks_ + plan_->always.count);
}

} // namespace tutti::offload

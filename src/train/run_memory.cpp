#include "train/run_memory.h"

#include "base/process_memory.h"

#include <fmt/format.h>

namespace tutti::train {

RunMemory::RunMemory(Session& session, run::TrainListener& listener)
    : session_(session), arena_(session.device().allocate(session.device_memory())) {
    const std::optional<offload::OffloadPlan>& plan = session.offload();
    if (!plan) {
        data_.emplace(session.model_data(arena_->data()));
        return;
    }
    if (const Bytes host = plan->backing.memory(); host.count >> 30 > 0)
        listener.waiting(fmt::format("taking {} of host memory", to_string(host)));
    offload_.emplace(session.device(), *plan, arena_->data(), session.disk());
    data_.emplace(session.model_data(offload_->backing()));
    offload_->attach(*data_);
}

void RunMemory::bind_for_training() { session_.executor().bind(*data_, scratch(), training()); }

Bytes memory_in_use(const backend::Device& device) {
    const auto memory = device.memory();
    return memory ? memory->total - memory->free : resident_memory();
}

} // namespace tutti::train

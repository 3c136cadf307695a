#include "runtime/step_staging.h"

#include "base/error.h"

#include <cstring>
#include <utility>

namespace tutti::runtime {

void StepStaging::allocate(const backend::Device& device) {
    if (host_) return;
    const std::int64_t each = 2 * ProgramMemory::scalars_bytes + memory_.map().batch_bytes().count;
    host_ = device.allocate_staging({most_under_way * each});
    std::byte* memory = host_->data();
    for (Place& place : places_) place.memory = std::exchange(memory, memory + each);
}

void StepStaging::begin(const StepScalars& scalars, const LoadBatch& load, backend::Queue& queue, StepTimer& timer) {
    TUTTI_CHECK(under_way() < most_under_way, "{} steps are under way", under_way());
    const Place& place = place_of(begun_++);
    std::memcpy(place.memory, &scalars, sizeof scalars);
    std::byte* const batches = results_in(place) + ProgramMemory::scalars_bytes;
    for (const Task& task : program_.step) {
        if (task.kind != TaskKind::load) continue;
        std::byte* const batch = batches + task.micro_batch * memory_.map().batch_stride();
        for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i] = batch + program_.inputs[i].buffer.address.offset;
        timer.run_on_host(task, [&] { load(task.micro_batch, inputs_); });
    }
    queue.copy_in(reinterpret_cast<std::byte*>(memory_.scalars()), {place.memory, sizeof scalars});
    queue.copy_in(memory_.batches(), {batches, static_cast<std::size_t>(memory_.map().batch_bytes().count)});
}

void StepStaging::end(backend::Queue& queue) {
    Place& place = place_of(begun_ - 1);
    queue.copy_out({results_in(place), sizeof(StepScalars)}, reinterpret_cast<const std::byte*>(memory_.scalars()));
    queue.note_time(place.finished_at);
    place.done = queue.mark();
}

FinishedStep StepStaging::finish(DeviceWaits& waits) {
    TUTTI_CHECK(under_way() > 0, "no step is under way");
    Place& place = place_of(finished_++);
    waits.wait(*place.done);
    place.done.reset();
    FinishedStep step{.scalars = {}, .at = place.finished_at};
    std::memcpy(&step.scalars, results_in(place), sizeof step.scalars);
    return step;
}

} // namespace tutti::runtime

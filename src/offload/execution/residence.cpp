#include "offload/execution/residence.h"

#include "base/error.h"
#include "comm/measure.h"

#include <algorithm>

namespace tutti::offload {

Residence::Residence(StepTimePoints step, ResidencyPlan plan, const backend::Device& device,
                     const BackingStore& backing, ModelData& data, std::byte* memory)
    : step_(std::move(step)), plan_(std::move(plan)), device_(&device), backing_(&backing), data_(&data),
      memory_(memory), interval_states_(plan_.intervals.size()), resident_states_(step_.residents.size()),
      in_(device.make_copy_queue()), out_(device.make_copy_queue()) {
    const std::int32_t time_points = step_.problem.time_points();
    for (auto* of_time_point : {&issued_, &begun_, &ended_})
        of_time_point->resize(static_cast<std::size_t>(time_points));
    auto within = [&](std::int32_t time_point) {
        return static_cast<std::size_t>((time_point + time_points) % time_points);
    };
    for (std::size_t s = 0; s < plan_.intervals.size(); ++s) {
        const ResidencyInterval& interval = plan_.intervals[s];
        const auto number = static_cast<std::int32_t>(s);
        if (interval.always) continue;
        issued_[within(interval.issue)].push_back(number);
        begun_[within(interval.first)].push_back(number);
        ended_[within(interval.last)].push_back(number);
    }
    used_on_host_.resize(static_cast<std::size_t>(time_points));
    for (const ResidentUse& use : step_.problem.uses) {
        if (!use.on_host) {
            of(use.resident).changes |= use.changes_content();
            continue;
        }
        used_on_host_[static_cast<std::size_t>(use.time_point)].push_back(use.resident);
        if (!work_) work_ = std::make_unique<backend::ThreadQueue>();
    }
    if (work_ && device.memory()) {
        late_in_ = std::make_unique<LateLane>();
        late_in_->copies = device.make_copy_queue();
    }
}

// Copies under way end before their memory is freed. Their failures were thrown to those who waited for them.
Residence::~Residence() {
    work_.reset();
    for (backend::Queue* queue : {in_.get(), out_.get()}) try {
            queue->synchronize();
        } catch (const std::exception&) {
        }
}

std::span<std::byte> Residence::memory(std::int32_t number) const {
    const ResidencyInterval& of = interval(number);
    const Bytes size = step_.problem.residents[static_cast<std::size_t>(of.resident)];
    return {memory_ + of.offset, static_cast<std::size_t>(size.count)};
}

void Residence::begin_step() {
    data_->take(*this);
    if (!loaded_) load_initial();
    time_point_ = 0;
}

// Loads or starts to fetch the chunks that are on the device when a step begins.
void Residence::load_initial() {
    const std::int32_t time_points = step_.problem.time_points();
    for (std::size_t s = 0; s < plan_.intervals.size(); ++s) {
        const auto number = static_cast<std::int32_t>(s);
        interval_state(number) = {};
        const ResidencyInterval& one = interval(number);
        if (one.always && place(number).tier == BackingTier::device) continue;
        if (!one.always && one.last < time_points) {
            if (one.issue < 0) issue(number);
            continue;
        }
        if (place(number).tier ==
            BackingTier::device) { // its content is dead until the step writes it; gaps between tensors are 0
            in_->clear(memory(number));
            in_->synchronize();
        } else {
            fetch(number);
            interval_state(number).came->synchronize();
        }
        interval_state(number).here = true;
        change_state(one.resident, ChunkState::on_device);
        data_->set_place(resident(number), memory(number).data());
    }
    loaded_ = true;
}

void Residence::before(backend::Queue& queue) {
    const auto m = static_cast<std::size_t>(time_point_);
    for (std::int32_t number : issued_[m])
        if (!interval_state(number).on_its_way) issue(number); // or it was brought
    for (std::int32_t number : begun_[m]) begin(number, queue);
}

void Residence::after(backend::Queue& queue) {
    for (std::int32_t number : ended_[static_cast<std::size_t>(time_point_)]) end(number, queue);
    ++time_point_;
}

std::shared_ptr<const backend::Event> Residence::work_on_host(std::function<void()> work) {
    const auto& used = used_on_host_[static_cast<std::size_t>(time_point_)];
    std::vector<std::shared_ptr<const backend::Event>> before;
    for (std::int32_t one : used)
        if (const auto& left = of(one).left) before.push_back(left);
    work_->run([before = std::move(before), work = std::move(work)] {
        for (const auto& event : before) event->synchronize();
        work();
    });
    const std::shared_ptr<const backend::Event> done = work_->mark();
    for (std::int32_t one : used) {
        change_state(one, ChunkState::host_work);
        of(one).worked = done;
    }
    return done;
}

std::byte* Residence::memory_on_host(const ChunkResident& resident) const {
    const BackingPlace* place = backing_->find(resident);
    TUTTI_CHECK(place != nullptr && place->tier == BackingTier::host, "chunk {} of {} has no copy in host memory",
                resident.chunk, name_of(resident.region));
    return backing_->memory(*place);
}

void Residence::end_step() {
    TUTTI_CHECK(time_point_ == step_.problem.time_points(), "a step of {} time points went through {}",
                step_.problem.time_points(), time_point_);
}

void Residence::issue(std::int32_t number) {
    interval_state(number).on_its_way = true;
    if (interval(number).fetched) fetch(number);
}

void Residence::begin(std::int32_t number, backend::Queue& queue) {
    IntervalState& now = interval_state(number);
    TUTTI_CHECK(now.on_its_way && !now.here, "a residency interval of chunk {} begins out of turn",
                resident(number).chunk);
    now.on_its_way = false;
    now.here = true;
    change_state(interval(number).resident, ChunkState::on_device);
    const Seconds since = steady_now();
    if (interval(number).fetched) {
        queue.wait(now.came);
    } else {
        for (std::int32_t other : interval(number).after)
            if (interval_state(other).gone) queue.wait(interval_state(other).gone);
    }
    waited_.count += steady_now().count - since.count;
    // Of gradients, gaps between tensors count in the norm.
    if (!interval(number).fetched && is_chunk(resident(number).region)) queue.clear(memory(number));
    data_->set_place(resident(number), memory(number).data());
}

void Residence::end(std::int32_t number, backend::Queue& queue) {
    IntervalState& now = interval_state(number);
    TUTTI_CHECK(now.here, "a residency interval of chunk {} ends and did not begin", resident(number).chunk);
    now.here = false;
    data_->set_place(resident(number), nullptr);
    now.gone = queue.mark();
    if (interval(number).returned)
        write_back(number, now.gone);
    else
        change_state(interval(number).resident, ChunkState::offloaded);
    of(interval(number).resident).left = now.gone;
}

void Residence::change_state(std::int32_t resident, ChunkState state) {
    ChunkState& now = of(resident).state;
    const ChunkResident& chunk = step_.residents[static_cast<std::size_t>(resident)];
    TUTTI_CHECK(may_follow(now, state), "chunk {} of {} turns from {} to {} at time point {}", chunk.chunk,
                name_of(chunk.region), name_of(now), name_of(state), time_point_);
    now = state;
}

void Residence::fetch(std::int32_t number) {
    change_state(interval(number).resident, ChunkState::fetching);
    const BackingPlace& from = place(number);
    const std::span<std::byte> to = memory(number);
    std::vector<std::shared_ptr<const backend::Event>> before;
    for (std::int32_t other : interval(number).after)
        if (interval_state(other).gone) before.push_back(interval_state(other).gone);
    const std::shared_ptr<const backend::Event>& worked = of(interval(number).resident).worked;
    if (worked && worked->has_come()) {
        worked->synchronize(); // throws what it ended with
    } else if (worked) {
        before.push_back(worked);
        // A device's queue would have the host wait for a thread.
        if (late_in_) {
            LateLane& lane = *late_in_;
            lane.thread.run([before, to, memory = backing_->memory(from), &lane] {
                for (const auto& event : before) event->synchronize();
                lane.copies->copy_in(to.data(), {memory, to.size()});
                lane.copies->synchronize();
            });
            interval_state(number).came = lane.thread.mark();
            return;
        }
    }
    if (from.tier != BackingTier::disk) {
        for (const auto& event : before) in_->wait(event);
        in_->copy_in(to.data(), {backing_->memory(from), to.size()});
        interval_state(number).came = in_->mark();
        return;
    }
    interval_state(number).came = backing_->from_disk().read(from.offset, to, std::move(before));
}

void Residence::write_back(std::int32_t number, const std::shared_ptr<const backend::Event>& done) {
    change_state(interval(number).resident, ChunkState::evicting);
    const BackingPlace& to = place(number);
    const std::span<std::byte> from = memory(number);
    if (to.tier != BackingTier::disk) {
        out_->wait(done);
        if (const auto& worked = of(interval(number).resident).worked; worked && !worked->has_come())
            out_->wait(worked);
        out_->copy_out({backing_->memory(to), from.size()}, from.data());
        interval_state(number).gone = out_->mark();
        return;
    }
    interval_state(number).gone = backing_->to_disk().write(to.offset, from, {done});
}

void Residence::wait_for_copies() {
    in_->synchronize();
    out_->synchronize();
    if (work_) work_->synchronize();
    if (late_in_) late_in_->thread.synchronize();
    backing_->wait_for_disk();
}

void Residence::evict_all() {
    if (!loaded_) return;
    device_->synchronize();
    wait_for_copies();
    for (std::size_t s = 0; s < interval_states_.size(); ++s) {
        const auto number = static_cast<std::int32_t>(s);
        IntervalState& now = interval_state(number);
        if (!now.here) continue;
        // Written back whatever its next use is, since it may have changed.
        if (place(number).tier != BackingTier::device && of(interval(number).resident).changes)
            write_back(number, in_->mark());
        data_->set_place(resident(number), nullptr);
    }
    wait_for_copies();
    for (std::size_t r = 0; r < resident_states_.size(); ++r)
        if (resident_states_[r].state != ChunkState::offloaded)
            change_state(static_cast<std::int32_t>(r), ChunkState::offloaded);
    loaded_ = false;
}

} // namespace tutti::offload

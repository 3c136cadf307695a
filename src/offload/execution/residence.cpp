#include "offload/execution/residence.h"

#include "base/error.h"
#include "comm/measure.h"

#include <algorithm>

namespace tutti::offload {

Residence::Residence(StepMoments step, ResidencyPlan plan, const backend::Device& device, const Homes& homes,
                     ModelData& data, std::byte* memory)
    : step_(std::move(step)), plan_(std::move(plan)), device_(&device), homes_(&homes), data_(&data), memory_(memory),
      visits_(plan_.stays.size()), whereabouts_(step_.residents.size()), in_(device.make_copy_queue()),
      out_(device.make_copy_queue()) {
    const std::int32_t moments = step_.problem.moments();
    for (auto* of_moment : {&issued_, &begun_, &ended_}) of_moment->resize(static_cast<std::size_t>(moments));
    auto within = [&](std::int32_t moment) { return static_cast<std::size_t>((moment + moments) % moments); };
    for (std::size_t s = 0; s < plan_.stays.size(); ++s) {
        const Stay& stay = plan_.stays[s];
        const auto number = static_cast<std::int32_t>(s);
        if (stay.always) continue;
        issued_[within(stay.issue)].push_back(number);
        begun_[within(stay.first)].push_back(number);
        ended_[within(stay.last)].push_back(number);
    }
    used_at_home_.resize(static_cast<std::size_t>(moments));
    for (const ResidentUse& use : step_.problem.uses) {
        if (!use.at_home) {
            of(use.resident).changes |= use.changes_content();
            continue;
        }
        used_at_home_[static_cast<std::size_t>(use.moment)].push_back(use.resident);
        if (!work_) work_ = std::make_unique<backend::ThreadQueue>();
    }
    if (work_ && device.memory()) {
        late_in_ = std::make_unique<LateLane>();
        late_in_->copies = device.make_copy_queue();
    }
}

// Copies under way end before the memory goes; what went wrong with them was told to those who waited.
Residence::~Residence() {
    work_.reset();
    for (backend::Queue* queue : {in_.get(), out_.get()}) try {
            queue->synchronize();
        } catch (const std::exception&) {
        }
}

std::span<std::byte> Residence::memory(std::int32_t number) const {
    const Stay& of = stay(number);
    const Bytes size = step_.problem.residents[static_cast<std::size_t>(of.resident)];
    return {memory_ + of.offset, static_cast<std::size_t>(size.count)};
}

void Residence::begin_step() {
    data_->take(*this);
    if (!brought_) bring();
    moment_ = 0;
}

// What is there, or on its way, when a step begins.
void Residence::bring() {
    const std::int32_t moments = step_.problem.moments();
    for (std::size_t s = 0; s < plan_.stays.size(); ++s) {
        const auto number = static_cast<std::int32_t>(s);
        visit(number) = {};
        const Stay& one = stay(number);
        if (one.always && home(number).tier == HomeTier::device) continue;
        if (!one.always && one.last < moments) {
            if (one.issue < 0) issue(number);
            continue;
        }
        if (home(number).tier == HomeTier::device) { // nobody's until the step writes it; gaps between tensors are 0
            in_->clear(memory(number));
            in_->synchronize();
        } else {
            fetch(number);
            visit(number).came->synchronize();
        }
        visit(number).here = true;
        turn(one.resident, ChunkState::here);
        data_->set_place(resident(number), memory(number).data());
    }
    brought_ = true;
}

void Residence::before(backend::Queue& queue) {
    const auto m = static_cast<std::size_t>(moment_);
    for (std::int32_t number : issued_[m])
        if (!visit(number).on_its_way) issue(number); // or it was brought
    for (std::int32_t number : begun_[m]) begin(number, queue);
}

void Residence::after(backend::Queue& queue) {
    for (std::int32_t number : ended_[static_cast<std::size_t>(moment_)]) end(number, queue);
    ++moment_;
}

std::shared_ptr<const backend::Event> Residence::work_at_home(std::function<void()> work) {
    const auto& used = used_at_home_[static_cast<std::size_t>(moment_)];
    std::vector<std::shared_ptr<const backend::Event>> before;
    for (std::int32_t one : used)
        if (const auto& left = of(one).left) before.push_back(left);
    work_->run([before = std::move(before), work = std::move(work)] {
        for (const auto& event : before) event->synchronize();
        work();
    });
    const std::shared_ptr<const backend::Event> done = work_->mark();
    for (std::int32_t one : used) {
        turn(one, ChunkState::working);
        of(one).worked = done;
    }
    return done;
}

std::byte* Residence::memory_at_home(const ChunkResident& resident) const {
    const Home* home = homes_->find(resident);
    TUTTI_CHECK(home != nullptr && home->tier == HomeTier::host, "chunk {} of {} is not at home in host memory",
                resident.chunk, name_of(resident.region));
    return homes_->memory(*home);
}

void Residence::end_step() {
    TUTTI_CHECK(moment_ == step_.problem.moments(), "a step of {} moments went through {}", step_.problem.moments(),
                moment_);
}

void Residence::issue(std::int32_t number) {
    visit(number).on_its_way = true;
    if (stay(number).fetched) fetch(number);
}

void Residence::begin(std::int32_t number, backend::Queue& queue) {
    Visit& now = visit(number);
    TUTTI_CHECK(now.on_its_way && !now.here, "a stay of chunk {} begins out of turn", resident(number).chunk);
    now.on_its_way = false;
    now.here = true;
    turn(stay(number).resident, ChunkState::here);
    const Seconds since = steady_now();
    if (stay(number).fetched) {
        queue.wait(now.came);
    } else {
        for (std::int32_t other : stay(number).after)
            if (visit(other).gone) queue.wait(visit(other).gone);
    }
    waited_.count += steady_now().count - since.count;
    // Of gradients, gaps between tensors count in the norm.
    if (!stay(number).fetched && is_chunk(resident(number).region)) queue.clear(memory(number));
    data_->set_place(resident(number), memory(number).data());
}

void Residence::end(std::int32_t number, backend::Queue& queue) {
    Visit& now = visit(number);
    TUTTI_CHECK(now.here, "a stay of chunk {} ends that did not begin", resident(number).chunk);
    now.here = false;
    data_->set_place(resident(number), nullptr);
    now.gone = queue.mark();
    if (stay(number).returned)
        send_home(number, now.gone);
    else
        turn(stay(number).resident, ChunkState::home);
    of(stay(number).resident).left = now.gone;
}

void Residence::turn(std::int32_t resident, ChunkState state) {
    ChunkState& now = of(resident).state;
    const ChunkResident& chunk = step_.residents[static_cast<std::size_t>(resident)];
    TUTTI_CHECK(may_turn(now, state), "chunk {} of {} turns from {} to {} at moment {}", chunk.chunk,
                name_of(chunk.region), name_of(now), name_of(state), moment_);
    now = state;
}

void Residence::fetch(std::int32_t number) {
    turn(stay(number).resident, ChunkState::coming);
    const Home& from = home(number);
    const std::span<std::byte> to = memory(number);
    std::vector<std::shared_ptr<const backend::Event>> before;
    for (std::int32_t other : stay(number).after)
        if (visit(other).gone) before.push_back(visit(other).gone);
    const std::shared_ptr<const backend::Event>& worked = of(stay(number).resident).worked;
    if (worked && worked->has_come()) {
        worked->synchronize(); // throws what it ended with
    } else if (worked) {
        before.push_back(worked);
        // A device's queue would have the host wait for a thread.
        if (late_in_) {
            LateLane& lane = *late_in_;
            lane.thread.run([before, to, memory = homes_->memory(from), &lane] {
                for (const auto& event : before) event->synchronize();
                lane.copies->copy_in(to.data(), {memory, to.size()});
                lane.copies->synchronize();
            });
            visit(number).came = lane.thread.mark();
            return;
        }
    }
    if (from.tier != HomeTier::disk) {
        for (const auto& event : before) in_->wait(event);
        in_->copy_in(to.data(), {homes_->memory(from), to.size()});
        visit(number).came = in_->mark();
        return;
    }
    visit(number).came = homes_->from_disk().read(from.offset, to, std::move(before));
}

void Residence::send_home(std::int32_t number, const std::shared_ptr<const backend::Event>& done) {
    turn(stay(number).resident, ChunkState::leaving);
    const Home& to = home(number);
    const std::span<std::byte> from = memory(number);
    if (to.tier != HomeTier::disk) {
        out_->wait(done);
        if (const auto& worked = of(stay(number).resident).worked; worked && !worked->has_come()) out_->wait(worked);
        out_->copy_out({homes_->memory(to), from.size()}, from.data());
        visit(number).gone = out_->mark();
        return;
    }
    visit(number).gone = homes_->to_disk().write(to.offset, from, {done});
}

void Residence::wait_for_copies() {
    in_->synchronize();
    out_->synchronize();
    if (work_) work_->synchronize();
    if (late_in_) late_in_->thread.synchronize();
    homes_->wait_for_disk();
}

void Residence::leave() {
    if (!brought_) return;
    device_->synchronize();
    wait_for_copies();
    for (std::size_t s = 0; s < visits_.size(); ++s) {
        const auto number = static_cast<std::int32_t>(s);
        Visit& now = visit(number);
        if (!now.here) continue;
        // Whatever the step would do with it next: it may have been changed.
        if (home(number).tier != HomeTier::device && of(stay(number).resident).changes) send_home(number, in_->mark());
        data_->set_place(resident(number), nullptr);
    }
    wait_for_copies();
    for (std::size_t r = 0; r < whereabouts_.size(); ++r)
        if (whereabouts_[r].state != ChunkState::home) turn(static_cast<std::int32_t>(r), ChunkState::home);
    brought_ = false;
}

} // namespace tutti::offload

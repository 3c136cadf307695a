#include "offload/offload_plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"
#include "program/update_places.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace tutti::offload {
namespace {

StepTimePoints with_limits(StepTimePoints step, Bytes capacity, const OffloadLimits& limits,
                           const OffloadSpeed& speed) {
    step.problem.capacity = std::max(capacity, Bytes{});
    step.problem.host = speed.host;
    step.problem.disk = speed.disk.value_or(usual_disk);
    step.problem.eviction = limits.eviction;
    step.problem.ahead = limits.prefetch;
    if (limits.has_disk) step.problem.room = limits.host;
    return step;
}

bool is_state(const ChunkResident& resident) {
    return resident.region == Region::master || resident.region == Region::moments1 ||
           resident.region == Region::moments2;
}

// Chunks whose states do not stay on the device.
std::vector<std::int32_t> passing(const OffloadPlan& plan, const std::vector<std::int32_t>& chunks) {
    std::set<std::int32_t> leaving;
    for (const ResidencyInterval& interval : plan.training.residency.intervals) {
        const ChunkResident& resident = plan.training.step.residents[static_cast<std::size_t>(interval.resident)];
        if (is_state(resident) && !interval.always) leaving.insert(resident.chunk);
    }
    std::vector<std::int32_t> result;
    std::ranges::copy_if(chunks, std::back_inserter(result), [&](std::int32_t c) { return leaving.contains(c); });
    return result;
}

// Of the chunks those whose states are used at a time point that needs more than the device has.
std::set<std::int32_t> too_large(const StepTimePoints& step, const std::vector<std::int32_t>& chunks) {
    std::vector<Bytes> used(static_cast<std::size_t>(step.problem.time_points()));
    auto resident = [&](const ResidentUse& use) { return step.residents[static_cast<std::size_t>(use.resident)]; };
    for (const ResidentUse& use : step.problem.uses)
        used[static_cast<std::size_t>(use.time_point)] +=
            step.problem.residents[static_cast<std::size_t>(use.resident)];
    std::set<std::int32_t> result;
    for (const ResidentUse& use : step.problem.uses)
        if (is_state(resident(use)) && used[static_cast<std::size_t>(use.time_point)] > step.problem.capacity &&
            std::ranges::find(chunks, resident(use).chunk) != chunks.end())
            result.insert(resident(use).chunk);
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
            if (limits_.placement == OptimizerPlacement::automatic && !too_small_.empty()) {
                too_large_ = too_large(too_small_.front(), able);
                attempt({});
            }
            if (limits_.placement == OptimizerPlacement::automatic) try_shares(best_ ? passing(*best_, able) : able);
        }
        if (!best_) say_why();
        return std::move(*best_);
    }

  private:
    // A larger device would do for those attempts for which host memory is enough.
    [[noreturn]] void say_why() const {
        std::optional<Bytes> enough;
        for (const StepTimePoints& step : too_small_) {
            std::set<std::int32_t> on_host;
            for (const ResidentUse& use : step.problem.uses)
                if (use.on_host) on_host.insert(use.resident);
            Bytes needed;
            for (std::int32_t resident : on_host) needed += step.problem.residents[static_cast<std::size_t>(resident)];
            if (needed > limits_.host) continue;
            const Bytes with_this = enough_capacity(step.problem);
            if (!enough || with_this < *enough) enough = with_this;
        }
        if (!enough && why_not_) std::rethrow_exception(why_not_);
        throw DeviceTooSmall(enough ? *enough : enough_capacity(too_small_.front().problem));
    }

    // The last ones go to the host: it has until the next forward comes to them.
    void try_shares(const std::vector<std::int32_t>& candidates) {
        const std::size_t all = candidates.size();
        auto attempt_last = [&](std::size_t count) {
            if (count <= all) attempt({candidates.end() - static_cast<std::ptrdiff_t>(count), candidates.end()});
        };
        attempt_last(all);
        if (!best_ && !why_not_) return; // the more the host updates, the less the device needs
        for (const std::size_t quarters : {2, 1, 3}) attempt_last((all * quarters + 3) / 4);
        for (const std::size_t parts : {8, 16}) { // closer to the best so far
            const std::size_t best = best_ ? best_->host_updates.size() : 0, step = (all + parts - 1) / parts;
            attempt_last(best + step);
            if (best > step) attempt_last(best - step);
        }
    }

    // With what has to be there anyway.
    void attempt(const std::vector<std::int32_t>& chunks) {
        std::set<std::int32_t> on_host = too_large_;
        on_host.insert(chunks.begin(), chunks.end());
        if (!tried_.insert(on_host).second) return;
        const bool only_later = limits_.updates == UpdateTime::next;
        if (!only_later) attempt(on_host, false);
        if (only_later || limits_.updates == UpdateTime::automatic) attempt(on_host, true);
    }

    // `later`: what the device updates, it does in the next step.
    void attempt(const std::set<std::int32_t>& on_host, bool later) {
        const int left = updates_.place(on_host, later);
        if (left == 0 && later && limits_.updates != UpdateTime::next) return; // tried before
        OffloadPlan plan{
            .training = {with_limits(time_points_of(training_, speed_.seconds), limits_.device, limits_, speed_), {}},
            .updates = narrow<std::int32_t>(updates_.chunks().size()),
            .host_updates = {on_host.begin(), on_host.end()},
            .later_updates = left > 0,
            .updates_later = left,
            .timed_disk = speed_.disk,
            .host_update_bytes = speed_.updates};
        try {
            plan.training.residency = plan_residency(plan.training.step.problem);
        } catch (const Error&) {
            too_small_.push_back(std::move(plan.training.step));
            return;
        }
        try {
            plan.backing = plan_backing(plan.training.step, plan.training.residency, limits_.host);
        } catch (const Error&) {
            if (!why_not_) why_not_ = std::current_exception();
            return;
        }
        if (best_ && !is_better(plan, *best_)) return;
        best_ = std::move(plan);
    }

    bool is_better(const OffloadPlan& one, const OffloadPlan& other) const {
        const bool fits = one.backing.memory() <= limits_.free, other_fits = other.backing.memory() <= limits_.free;
        if (fits != other_fits) return fits;
        if (!fits) return one.backing.memory() < other.backing.memory();
        constexpr double gain = 0.99; // measured speeds are not so exact that less would count
        return one.training.residency.seconds <= gain * other.training.residency.seconds;
    }

    Program& training_;
    const OffloadLimits& limits_;
    const OffloadSpeed& speed_;
    UpdatePlaces updates_;
    std::set<std::set<std::int32_t>> tried_; // on the host
    std::optional<OffloadPlan> best_;
    std::exception_ptr why_not_;            // too little room for backing
    std::vector<StepTimePoints> too_small_; // attempts that the device has too little memory for
    std::set<std::int32_t> too_large_;      // chunks that it cannot update
};

} // namespace

OffloadPlan plan_offload(Program training, const Program* evaluation, const OffloadLimits& limits,
                         const OffloadSpeed& speed) {
    OffloadPlan plan = Planning(training, limits, speed).plan();
    if (evaluation != nullptr) plan_evaluation(plan, *evaluation, limits, speed);
    sum_up(plan);
    return plan;
}

void plan_evaluation(OffloadPlan& plan, const Program& evaluation, const OffloadLimits& limits,
                     const OffloadSpeed& speed) {
    sum_up(plan);
    auto always_on_device = [&](const ChunkResident& resident) { return is_always_there(plan, resident); };
    plan.evaluation = {with_limits(time_points_of(evaluation, speed.seconds, always_on_device),
                                   limits.device - plan.always, limits, speed),
                       {}};
    try {
        plan.evaluation->residency = plan_residency(plan.evaluation->step.problem);
    } catch (const Error&) {
        throw DeviceTooSmall(plan.always + enough_capacity(plan.evaluation->step.problem));
    }
    sum_up(plan);
}

void sum_up(OffloadPlan& plan) {
    plan.device = plan.training.residency.memory;
    plan.always = {};
    for (const ResidencyInterval& interval : plan.training.residency.intervals)
        if (interval.always)
            plan.always = std::max(
                plan.always,
                {round_up(interval.offset +
                              plan.training.step.problem.residents[static_cast<std::size_t>(interval.resident)].count,
                          memory::buffer_alignment)});
    if (plan.evaluation) plan.device = std::max(plan.device, plan.always + plan.evaluation->residency.memory);
}

bool is_always_there(const OffloadPlan& plan, const ChunkResident& resident) {
    const auto& residents = plan.backing.residents;
    const auto at = std::ranges::find(residents, resident);
    return at != residents.end() &&
           plan.backing.places[static_cast<std::size_t>(at - residents.begin())].tier == BackingTier::device;
}

std::optional<std::string> slow_disk(const OffloadPlan& plan, const std::string& folder) {
    const ResidencyProblem& problem = plan.training.step.problem;
    const ResidencyPlan& residency = plan.training.residency;
    Bytes in, out;
    for (const ResidencyInterval& interval : residency.intervals) {
        const auto r = static_cast<std::size_t>(interval.resident);
        if (residency.tiers[r] != BackingTier::disk) continue;
        if (interval.fetched) in += problem.residents[r];
        if (interval.returned) out += problem.residents[r];
    }
    auto per_second = [](double bytes) { return to_string(Bytes{static_cast<std::int64_t>(bytes)}); };
    const double reading = static_cast<double>(in.count) / problem.disk.in,
                 writing = static_cast<double>(out.count) / problem.disk.out;
    const Seconds needed{std::max({reading, writing, (reading + writing) / problem.disk.together})};
    const Seconds computing{residency.seconds - residency.exposed};
    if (needed.count <= computing.count) return std::nullopt;
    return fmt::format("in a step {} of model data come from {} and {} go there, which reads {} and writes {} per "
                       "second: that takes {}, and computing {}",
                       to_string(in), folder, to_string(out), per_second(problem.disk.in), per_second(problem.disk.out),
                       to_string(needed), to_string(computing));
}

} // namespace tutti::offload

#include "offload/planned_residency.h"

#include "base/error.h"
#include "offload/intervals.h"
#include "offload/offload_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <sstream>

namespace tutti::offload {
namespace {

PlannedStep recorded(const OffloadPlan::Part& part) {
    const ResidencyPlan& residency = part.residency;
    PlannedStep step{
        .capacity = part.step.problem.capacity, .seconds = residency.seconds, .exposed = residency.exposed};
    for (std::size_t r = 0; r < part.step.residents.size(); ++r)
        step.residents.push_back({.resident = part.step.residents[r], .tier = residency.tiers[r]});
    for (const ResidencyInterval& interval : residency.intervals) {
        ResidentIntervals& one = step.residents[static_cast<std::size_t>(interval.resident)];
        one.always |= interval.always;
        if (!interval.always) one.intervals.push_back({interval.first, interval.last});
    }
    for (ResidentIntervals& one : step.residents) std::ranges::sort(one.intervals, {}, &Interval::first);
    return step;
}

// Gives a step's problem the intervals that were recorded.
class Following {
  public:
    Following(const PlannedStep& record, StepTimePoints& step) : record_(record), step_(step), table_(step.problem) {}

    ResidencyPlan plan() {
        std::vector<BackingTier> tiers;
        if (record_.residents.size() != step_.residents.size())
            fail("it has {} pieces of model data, and the step uses {}", record_.residents.size(),
                 step_.residents.size());
        for (std::size_t r = 0; r < step_.residents.size(); ++r) {
            const ResidentIntervals& one = record_.residents[r];
            if (one.resident != step_.residents[r])
                fail("it speaks of {} {} where the step uses {} {}", name_of(one.resident.region), one.resident.chunk,
                     name_of(step_.residents[r].region), step_.residents[r].chunk);
            add(static_cast<std::int32_t>(r), one);
            check_tier(r, one);
            tiers.push_back(one.tier);
        }
        std::optional<ResidencyPlan> plan = lay_out(step_.problem, std::move(intervals_), std::move(tiers));
        if (!plan) fail("it does not find room in {}", to_string(record_.capacity));
        plan->seconds = record_.seconds;
        plan->exposed = record_.exposed;
        try {
            verify(step_.problem, *plan);
        } catch (const Bug&) {
            fail("data would be missing when it is used");
        }
        return std::move(*plan);
    }

  private:
    void add(std::int32_t r, const ResidentIntervals& one) {
        if (one.always) {
            intervals_.push_back({.resident = r, .last = step_.problem.time_points() - 1, .always = true});
            return;
        }
        const auto uses = static_cast<std::int32_t>(table_.of_resident[static_cast<std::size_t>(r)].size());
        if (std::ssize(one.intervals) > uses)
            fail("{} {} has {} intervals for {} uses", name_of(one.resident.region), one.resident.chunk,
                 one.intervals.size(), uses);
        for (const Interval& interval : one.intervals) {
            const std::int32_t points = step_.problem.time_points();
            const bool into_next_step = interval.last >= points;
            const std::int32_t first = use_at(r, interval.first),
                               last = use_at(r, into_next_step ? interval.last - points : interval.last);
            if (into_next_step ? last >= first : last < first)
                fail("the interval {}-{} of {} {} ends before it begins, or is longer than a step", interval.first,
                     interval.last, name_of(one.resident.region), one.resident.chunk);
            intervals_.push_back(
                interval_between(step_.problem, table_, r, first, into_next_step ? last + uses : last));
        }
    }

    // Which of its uses a resident has at this time point.
    std::int32_t use_at(std::int32_t r, std::int32_t point) const {
        const std::vector<std::int32_t>& uses = table_.of_resident[static_cast<std::size_t>(r)];
        const auto at = std::ranges::find(
            uses, point, [&](std::int32_t use) { return table_.uses[static_cast<std::size_t>(use)].time_point; });
        if (at == uses.end())
            fail("{} {} is not used at time point {}", name_of(step_.residents[static_cast<std::size_t>(r)].region),
                 step_.residents[static_cast<std::size_t>(r)].chunk, point);
        return static_cast<std::int32_t>(at - uses.begin());
    }

    void check_tier(std::size_t r, const ResidentIntervals& one) const {
        const bool by_host = std::ranges::any_of(table_.of_resident[r], [&](std::int32_t use) {
            return table_.uses[static_cast<std::size_t>(use)].on_host;
        });
        const bool copied = std::ranges::any_of(intervals_, [&](const ResidencyInterval& interval) {
            return interval.resident == static_cast<std::int32_t>(r) && (interval.fetched || interval.returned);
        });
        const bool is_right = by_host ? one.tier == BackingTier::host : !copied || one.tier != BackingTier::device;
        if (!is_right)
            fail("{} {} cannot be in {} between its intervals", name_of(one.resident.region), one.resident.chunk,
                 name_of(one.tier));
    }

    const PlannedStep& record_;
    StepTimePoints& step_;
    UseTable table_;
    std::vector<ResidencyInterval> intervals_;
};

OffloadPlan::Part follow(const PlannedStep& record, StepTimePoints step, const PlannedResidency& speeds,
                         bool prefetch) {
    step.problem.capacity = record.capacity;
    step.problem.host = speeds.host;
    step.problem.disk = speeds.disk.value_or(usual_disk);
    step.problem.ahead = prefetch;
    ResidencyPlan residency = Following(record, step).plan();
    return {std::move(step), std::move(residency)};
}

void count_updates(OffloadPlan& plan, const Program& training) {
    for (const Segment& segment : training.segments)
        for (const Instruction& instruction : segment.instructions) {
            if (instruction.kind != InstructionKind::update) continue;
            ++plan.updates;
            plan.updates_later += instruction.of_last_step;
        }
}

constexpr std::array regions = {Region::weights,  Region::gradients, Region::master,
                                Region::moments1, Region::moments2,  Region::offloaded};
constexpr std::array tiers = {BackingTier::device, BackingTier::host, BackingTier::disk};

std::optional<std::int32_t> number_in(std::string_view text) {
    std::int32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
    return number;
}

} // namespace

PlannedResidency recorded(const OffloadPlan& plan) {
    PlannedResidency record{.host_updates = plan.host_updates,
                            .later_updates = plan.later_updates,
                            .training = recorded(plan.training),
                            .host = plan.training.step.problem.host,
                            .disk = plan.timed_disk,
                            .host_update_bytes = plan.host_update_bytes};
    if (plan.evaluation) record.evaluation = recorded(*plan.evaluation);
    return record;
}

OffloadPlan follow(const PlannedResidency& record, const Program& training, const Program* evaluation,
                   const FollowOptions& options) {
    const InstructionSeconds seconds =
        options.seconds ? options.seconds : [](const Instruction&, const Task&) { return 0.0; };
    OffloadPlan plan{.training = follow(record.training, time_points_of(training, seconds), record, options.prefetch),
                     .host_updates = record.host_updates,
                     .later_updates = record.later_updates,
                     .timed_disk = record.disk,
                     .host_update_bytes = record.host_update_bytes};
    count_updates(plan, training);
    plan.backing =
        plan_backing(plan.training.step, plan.training.residency, {std::numeric_limits<std::int64_t>::max() / 2});
    if (evaluation != nullptr && record.evaluation) {
        auto always_on_device = [&](const ChunkResident& resident) { return is_always_there(plan, resident); };
        plan.evaluation = follow(*record.evaluation, time_points_of(*evaluation, seconds, always_on_device), record,
                                 options.prefetch);
    }
    sum_up(plan);
    return plan;
}

std::string to_text(const ResidentIntervals& one) {
    std::string text = fmt::format("{} {} in {}:", name_of(one.resident.region), one.resident.chunk, name_of(one.tier));
    if (one.always) text += " always";
    for (const Interval& interval : one.intervals) text += fmt::format(" {}-{}", interval.first, interval.last);
    return text;
}

std::optional<ResidentIntervals> parse_resident(const std::string& text) {
    std::istringstream words(text);
    std::string region, chunk, in, tier, word;
    words >> region >> chunk >> in >> tier;
    ResidentIntervals one;
    const auto found = std::ranges::find(regions, region, [](Region r) { return name_of(r); });
    const auto number = number_in(chunk);
    const auto backing = std::ranges::find(tiers, tier, [](BackingTier t) { return fmt::format("{}:", name_of(t)); });
    if (found == regions.end() || !number || in != "in" || backing == tiers.end()) return std::nullopt;
    one.resident = {*found, *number};
    one.tier = *backing;
    while (words >> word) {
        if (word == "always") {
            one.always = true;
            continue;
        }
        const std::size_t dash = word.find('-');
        const auto first = number_in(std::string_view(word).substr(0, dash)),
                   last = dash == std::string::npos ? std::nullopt : number_in(std::string_view(word).substr(dash + 1));
        if (!first || !last) return std::nullopt;
        one.intervals.push_back({*first, *last});
    }
    if (one.always && !one.intervals.empty()) return std::nullopt;
    return one;
}

} // namespace tutti::offload

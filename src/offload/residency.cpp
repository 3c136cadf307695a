#include "offload/residency.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"
#include "offload/intervals.h"

#include <algorithm>

namespace tutti::offload {
namespace {

Bytes aligned(Bytes bytes) { return {round_up(bytes.count, memory::buffer_alignment)}; }

Bytes used_at(const ResidencyProblem& problem, const UseTable& table, std::int32_t time_point) {
    Bytes used;
    for (const UseTable::Use& use : table.at(time_point))
        if (!use.on_host) used += aligned(problem.residents[static_cast<std::size_t>(use.resident)]);
    return used;
}

Bytes most_used(const ResidencyProblem& problem, const UseTable& table) {
    Bytes most;
    for (std::int32_t m = 0; m < problem.time_points(); ++m) most = std::max(most, used_at(problem, table, m));
    return most;
}

// Memory that is kept free, so that residents can be fetched while others are in use: none, or room for some of the
// largest.
std::vector<Bytes> memories_to_try(const ResidencyProblem& problem, Bytes least) {
    Bytes largest, sum;
    for (const Bytes& size : problem.residents) {
        largest = std::max(largest, aligned(size));
        sum += aligned(size);
    }
    std::vector<Bytes> result{problem.capacity};
    if (sum <= problem.capacity) return result;
    for (std::int64_t spare : {1, 2, 3, 4, 6})
        if (const Bytes memory = problem.capacity - spare * largest; problem.ahead && memory >= least)
            result.push_back(memory);
    // Where memory falls into pieces.
    for (int percent : {97, 94, 90, 85, 80, 70, 60, 50, 0}) {
        const Bytes memory = std::max(least, Bytes{problem.capacity.count / 100 * percent});
        if (memory < result.front()) result.push_back(memory);
    }
    return result;
}

void sum_up(const ResidencyProblem& problem, ResidencyPlan& plan) {
    for (const ResidencyInterval& interval : plan.intervals) {
        const Bytes size = problem.residents[static_cast<std::size_t>(interval.resident)];
        plan.memory = std::max(plan.memory, Bytes{interval.offset} + aligned(size));
        if (interval.fetched) plan.fetched += size;
        if (interval.returned) plan.returned += size;
    }
}

} // namespace

std::string_view name_of(BackingTier tier) {
    return tier == BackingTier::device ? "device" : tier == BackingTier::host ? "host" : "disk";
}

Bytes least_capacity(const ResidencyProblem& problem) { return most_used(problem, UseTable(problem)); }

Bytes enough_capacity(ResidencyProblem problem) {
    const UseTable table(problem);
    Bytes all;
    for (const Bytes& size : problem.residents) all += aligned(size);
    const Bytes least = most_used(problem, table), step = aligned({std::max<std::int64_t>(least.count / 50, 1)});
    for (problem.capacity = least; problem.capacity < all; problem.capacity += step) {
        std::vector<ResidencyInterval> intervals = choose_intervals(problem, table, problem.capacity);
        if (place_intervals(problem, intervals)) return problem.capacity;
        intervals = choose_intervals(problem, table, least);
        if (place_intervals(problem, intervals)) return problem.capacity;
    }
    return std::max(all, least);
}

ResidencyPlan plan_residency(const ResidencyProblem& problem) {
    for (const ResidentUse& use : problem.uses)
        TUTTI_CHECK(problem.residents[static_cast<std::size_t>(use.resident)].count > 0, "resident {} has no bytes",
                    use.resident);
    const UseTable table(problem);
    const Bytes least = most_used(problem, table);
    if (least > problem.capacity)
        fail("one instruction of the step needs {} of model data on the device, but only {} are left for it",
             to_string(least), to_string(problem.capacity));
    double computing = 0;
    for (double seconds : problem.seconds) computing += seconds;
    ResidencyPlan best;
    bool found = false;
    int without_gain = 0;
    for (const Bytes& memory : memories_to_try(problem, least)) {
        ResidencyPlan plan{.intervals = choose_intervals(problem, table, memory)};
        if (!place_intervals(problem, plan.intervals)) continue;
        plan.tiers = choose_tiers(problem, table, plan.intervals);
        plan.seconds = simulate_intervals(problem, table, plan.intervals, plan.tiers);
        if (found && plan.seconds >= best.seconds) {
            if (++without_gain == 3) break;
            continue;
        }
        best = std::move(plan);
        found = true;
    }
    // Luck with places does not grow with the memory: where less of it works, that is taken.
    if (!found)
        if (const Bytes enough = enough_capacity(problem); enough < problem.capacity) {
            ResidencyProblem less = problem;
            less.capacity = enough;
            return plan_residency(less);
        }
    if (!found)
        fail("the model data of a step cannot be laid out in {} of device memory, though no instruction needs more "
             "than {}; "
             "some more of it would do",
             to_string(problem.capacity), to_string(least));
    sum_up(problem, best);
    best.exposed = std::max(0.0, best.seconds - computing); // sums of other orders differ in their last bits
    best.least = least_copies(problem, table);
    verify(problem, best);
    return best;
}

std::optional<ResidencyPlan> lay_out(const ResidencyProblem& problem, std::vector<ResidencyInterval> intervals,
                                     std::vector<BackingTier> tiers) {
    if (!place_intervals(problem, intervals)) return std::nullopt;
    ResidencyPlan plan{.intervals = std::move(intervals), .tiers = std::move(tiers)};
    sum_up(problem, plan);
    plan.least = least_copies(problem, UseTable(problem));
    return plan;
}

void verify(const ResidencyProblem& problem, const ResidencyPlan& plan) {
    const UseTable table(problem);
    const std::int32_t time_points = problem.time_points();
    // Per resident its intervals in the order of their first use; every use on the device has to lie in exactly one.
    std::vector<std::vector<const ResidencyInterval*>> intervals(problem.residents.size());
    for (const ResidencyInterval& interval : plan.intervals) {
        intervals[static_cast<std::size_t>(interval.resident)].push_back(&interval);
        const std::int64_t end = interval.offset + problem.residents[static_cast<std::size_t>(interval.resident)].count;
        TUTTI_CHECK(interval.offset >= 0 && end <= problem.capacity.count, "an interval of resident {} ends at {}",
                    interval.resident, end);
    }
    auto holds = [&](const ResidencyInterval& interval, std::int32_t time_point) {
        return interval.always || (interval.first <= time_point && time_point <= interval.last) ||
               (interval.first <= time_point + time_points && time_point + time_points <= interval.last);
    };
    for (std::size_t u = 0; u < table.uses.size(); ++u) {
        const UseTable::Use& use = table.uses[u];
        const UseTable::Use& next = table.next(static_cast<std::int32_t>(u));
        const ResidencyInterval* here = nullptr;
        const ResidencyInterval* there = nullptr;
        for (const ResidencyInterval* interval : intervals[static_cast<std::size_t>(use.resident)]) {
            if (holds(*interval, use.time_point)) here = interval;
            if (holds(*interval, next.time_point)) there = interval;
        }
        TUTTI_CHECK((here == nullptr) == use.on_host && (there == nullptr) == next.on_host,
                    "resident {} is absent at time point {}, or not in host memory", use.resident, use.time_point);
        const bool leaves = use.on_host || (!here->always && here->last % time_points == use.time_point);
        if (!leaves) continue;
        TUTTI_CHECK(next.on_host || there->fetched || !next.needs, "resident {} is not fetched for time point {}",
                    use.resident, next.time_point);
        if (use.on_host) {
            const std::int32_t done = use.time_point < next.time_point ? use.time_point : use.time_point - time_points;
            TUTTI_CHECK(next.on_host || there->issue > done,
                        "resident {} is fetched at time point {}, before the host used it", use.resident, there->issue);
            continue;
        }
        bool changed = false;
        for (const std::int32_t other : table.of_resident[static_cast<std::size_t>(use.resident)])
            if (const UseTable::Use& each = table.uses[static_cast<std::size_t>(other)]; holds(*here, each.time_point))
                changed |= each.changes;
        TUTTI_CHECK(here->returned || !changed || !next.needs, "changes of resident {} are lost at time point {}",
                    use.resident, use.time_point);
    }
    // Stays that are there together lie apart.
    for (std::size_t a = 0; a < plan.intervals.size(); ++a)
        for (std::size_t b = 0; b < a; ++b) {
            const ResidencyInterval &one = plan.intervals[a], &two = plan.intervals[b];
            const std::int64_t one_end = one.offset + problem.residents[static_cast<std::size_t>(one.resident)].count,
                               two_end = two.offset + problem.residents[static_cast<std::size_t>(two.resident)].count;
            if (one_end <= two.offset || two_end <= one.offset) continue;
            const bool meet = holds(one, two.first % time_points) || holds(two, one.first % time_points);
            TUTTI_CHECK(!meet, "residents {} and {} overlap from time point {} on", one.resident, two.resident,
                        std::max(one.first, two.first));
        }
}

} // namespace tutti::offload

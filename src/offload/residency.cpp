#include "offload/residency.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"
#include "offload/stays.h"

#include <algorithm>

namespace tutti::offload {
namespace {

Bytes aligned(Bytes bytes) { return {round_up(bytes.count, memory::buffer_alignment)}; }

Bytes used_at(const ResidencyProblem& problem, const UseTable& table, std::int32_t moment) {
    Bytes used;
    for (const UseTable::Use& use : table.at(moment))
        if (!use.at_home) used += aligned(problem.residents[static_cast<std::size_t>(use.resident)]);
    return used;
}

Bytes most_used(const ResidencyProblem& problem, const UseTable& table) {
    Bytes most;
    for (std::int32_t m = 0; m < problem.moments(); ++m) most = std::max(most, used_at(problem, table, m));
    return most;
}

// What is kept free, so that residents can come while others are in use: none, or some of the largest.
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
    for (const Stay& stay : plan.stays) {
        const Bytes size = problem.residents[static_cast<std::size_t>(stay.resident)];
        plan.memory = std::max(plan.memory, Bytes{stay.offset} + aligned(size));
        if (stay.fetched) plan.fetched += size;
        if (stay.returned) plan.returned += size;
    }
}

} // namespace

std::string_view name_of(HomeTier tier) {
    return tier == HomeTier::device ? "device" : tier == HomeTier::host ? "host" : "disk";
}

Bytes least_capacity(const ResidencyProblem& problem) { return most_used(problem, UseTable(problem)); }

Bytes enough_capacity(ResidencyProblem problem) {
    const UseTable table(problem);
    Bytes all;
    for (const Bytes& size : problem.residents) all += aligned(size);
    const Bytes least = most_used(problem, table), step = aligned({std::max<std::int64_t>(least.count / 50, 1)});
    for (problem.capacity = least; problem.capacity < all; problem.capacity += step) {
        std::vector<Stay> stays = choose_stays(problem, table, problem.capacity);
        if (place_stays(problem, stays)) return problem.capacity;
        stays = choose_stays(problem, table, least);
        if (place_stays(problem, stays)) return problem.capacity;
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
        fail("one moment of the step needs {} of model data on the device, but only {} are left for it",
             to_string(least), to_string(problem.capacity));
    double computing = 0;
    for (double seconds : problem.seconds) computing += seconds;
    ResidencyPlan best;
    bool found = false;
    int without_gain = 0;
    for (const Bytes& memory : memories_to_try(problem, least)) {
        ResidencyPlan plan{.stays = choose_stays(problem, table, memory)};
        if (!place_stays(problem, plan.stays)) continue;
        plan.homes = choose_homes(problem, table, plan.stays);
        plan.seconds = walk_stays(problem, table, plan.stays, plan.homes);
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
        fail("the model data of a step cannot be laid out in {} of device memory, though no moment needs more than {}; "
             "some more of it would do",
             to_string(problem.capacity), to_string(least));
    sum_up(problem, best);
    best.exposed = std::max(0.0, best.seconds - computing); // sums of other orders differ in their last bits
    best.least = least_copies(problem, table);
    verify(problem, best);
    return best;
}

std::optional<ResidencyPlan> lay_out(const ResidencyProblem& problem, std::vector<Stay> stays,
                                     std::vector<HomeTier> homes) {
    if (!place_stays(problem, stays)) return std::nullopt;
    ResidencyPlan plan{.stays = std::move(stays), .homes = std::move(homes)};
    sum_up(problem, plan);
    plan.least = least_copies(problem, UseTable(problem));
    return plan;
}

void verify(const ResidencyProblem& problem, const ResidencyPlan& plan) {
    const UseTable table(problem);
    const std::int32_t moments = problem.moments();
    // Per resident the stays in the order of their first use; every use has to lie in exactly one.
    std::vector<std::vector<const Stay*>> stays(problem.residents.size());
    for (const Stay& stay : plan.stays) {
        stays[static_cast<std::size_t>(stay.resident)].push_back(&stay);
        const std::int64_t end = stay.offset + problem.residents[static_cast<std::size_t>(stay.resident)].count;
        TUTTI_CHECK(stay.offset >= 0 && end <= problem.capacity.count, "a stay of resident {} ends at {}",
                    stay.resident, end);
    }
    auto holds = [&](const Stay& stay, std::int32_t moment) {
        return stay.always || (stay.first <= moment && moment <= stay.last) ||
               (stay.first <= moment + moments && moment + moments <= stay.last);
    };
    for (std::size_t u = 0; u < table.uses.size(); ++u) {
        const UseTable::Use& use = table.uses[u];
        const UseTable::Use& next = table.next(static_cast<std::int32_t>(u));
        const Stay* here = nullptr;
        const Stay* there = nullptr;
        for (const Stay* stay : stays[static_cast<std::size_t>(use.resident)]) {
            if (holds(*stay, use.moment)) here = stay;
            if (holds(*stay, next.moment)) there = stay;
        }
        TUTTI_CHECK((here == nullptr) == use.at_home && (there == nullptr) == next.at_home,
                    "resident {} is absent at moment {}, or not at home", use.resident, use.moment);
        const bool leaves = use.at_home || (!here->always && here->last % moments == use.moment);
        if (!leaves) continue;
        TUTTI_CHECK(next.at_home || there->fetched || !next.needs, "resident {} is not fetched for moment {}",
                    use.resident, next.moment);
        if (use.at_home) {
            const std::int32_t done = use.moment < next.moment ? use.moment : use.moment - moments;
            TUTTI_CHECK(next.at_home || there->issue > done, "resident {} comes at moment {}, before it was used there",
                        use.resident, there->issue);
            continue;
        }
        bool changed = false;
        for (const std::int32_t other : table.of_resident[static_cast<std::size_t>(use.resident)])
            if (const UseTable::Use& each = table.uses[static_cast<std::size_t>(other)]; holds(*here, each.moment))
                changed |= each.changes;
        TUTTI_CHECK(here->returned || !changed || !next.needs, "changes of resident {} are lost at moment {}",
                    use.resident, use.moment);
    }
    // Stays that are there together lie apart.
    for (std::size_t a = 0; a < plan.stays.size(); ++a)
        for (std::size_t b = 0; b < a; ++b) {
            const Stay &one = plan.stays[a], &two = plan.stays[b];
            const std::int64_t one_end = one.offset + problem.residents[static_cast<std::size_t>(one.resident)].count,
                               two_end = two.offset + problem.residents[static_cast<std::size_t>(two.resident)].count;
            if (one_end <= two.offset || two_end <= one.offset) continue;
            const bool meet = holds(one, two.first % moments) || holds(two, one.first % moments);
            TUTTI_CHECK(!meet, "residents {} and {} overlap from moment {} on", one.resident, two.resident,
                        std::max(one.first, two.first));
        }
}

} // namespace tutti::offload

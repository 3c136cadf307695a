#include "offload/intervals.h"

#include "base/checked.h"
#include "memory/liveness.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tutti::offload {

std::vector<BackingTier> choose_tiers(const ResidencyProblem& problem, const UseTable& table,
                                      const std::vector<ResidencyInterval>& intervals) {
    std::vector<BackingTier> tiers(problem.residents.size(), BackingTier::device);
    std::vector<std::int32_t> copies(problem.residents.size());
    std::vector<bool> always(problem.residents.size());
    for (const ResidencyInterval& interval : intervals) {
        copies[static_cast<std::size_t>(interval.resident)] += interval.fetched + interval.returned;
        if (interval.always) always[static_cast<std::size_t>(interval.resident)] = true;
    }
    auto size_of = [&](std::size_t r) { return round_up(problem.residents[r].count, memory::buffer_alignment); };
    std::map<std::int32_t, std::vector<std::size_t>, std::greater<>> alike; // by copies
    std::int64_t taken = 0;
    for (std::size_t r = 0; r < problem.residents.size(); ++r) {
        const bool on_host = std::ranges::any_of(
            table.of_resident[r], [&](auto u) { return table.uses[static_cast<std::size_t>(u)].on_host; });
        if (always[r] || (copies[r] == 0 && !on_host)) continue;
        tiers[r] = BackingTier::host;
        if (on_host || !problem.room)
            taken += size_of(r);
        else
            alike[copies[r]].push_back(r);
    }
    if (!problem.room) return tiers;
    std::vector<std::size_t> on_disk;
    for (auto& [count, residents] : alike) {
        auto first_use = [&](std::size_t r) { return table.of_resident[r].front(); };
        std::ranges::sort(residents, {}, first_use);
        std::int64_t all = 0, passed = 0, mine = 0;
        for (std::size_t r : residents) all += size_of(r);
        const double share =
            std::clamp(static_cast<double>(problem.room->count - taken) / static_cast<double>(all), 0.0, 1.0);
        for (std::size_t r : residents) {
            passed += size_of(r);
            if (static_cast<double>(mine + size_of(r)) <= share * static_cast<double>(passed))
                mine += size_of(r);
            else
                on_disk.push_back(r);
        }
        taken += mine;
    }
    for (std::size_t r : on_disk) { // what is left between
        if (taken + size_of(r) <= problem.room->count)
            taken += size_of(r);
        else
            tiers[r] = BackingTier::disk;
    }
    return tiers;
}

} // namespace tutti::offload

#include "offload/stays.h"

#include "base/checked.h"
#include "memory/liveness.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tutti::offload {

std::vector<HomeTier> choose_homes(const ResidencyProblem& problem, const UseTable& table,
                                   const std::vector<Stay>& stays) {
    std::vector<HomeTier> homes(problem.residents.size(), HomeTier::device);
    std::vector<std::int32_t> copies(problem.residents.size());
    std::vector<bool> always(problem.residents.size());
    for (const Stay& stay : stays) {
        copies[static_cast<std::size_t>(stay.resident)] += stay.fetched + stay.returned;
        if (stay.always) always[static_cast<std::size_t>(stay.resident)] = true;
    }
    auto size_of = [&](std::size_t r) { return round_up(problem.residents[r].count, memory::buffer_alignment); };
    std::map<std::int32_t, std::vector<std::size_t>, std::greater<>> alike; // by copies
    std::int64_t taken = 0;
    for (std::size_t r = 0; r < problem.residents.size(); ++r) {
        const bool at_home = std::ranges::any_of(
            table.of_resident[r], [&](auto u) { return table.uses[static_cast<std::size_t>(u)].at_home; });
        if (always[r] || (copies[r] == 0 && !at_home)) continue;
        homes[r] = HomeTier::host;
        if (at_home || !problem.room)
            taken += size_of(r);
        else
            alike[copies[r]].push_back(r);
    }
    if (!problem.room) return homes;
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
            homes[r] = HomeTier::disk;
    }
    return homes;
}

} // namespace tutti::offload

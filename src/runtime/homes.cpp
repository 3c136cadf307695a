#include "runtime/homes.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace tutti {

HomePlan plan_homes(const StepMoments& step, const ResidencyPlan& plan, Bytes host_memory, bool has_disk) {
    const std::size_t count = step.residents.size();
    std::vector<std::int64_t> copies(count);
    std::vector<const Stay*> always(count);
    for (const Stay& stay : plan.stays) {
        const auto r = static_cast<std::size_t>(stay.resident);
        copies[r] += stay.fetched + stay.returned;
        if (stay.always) always[r] = &stay;
    }
    // What is used at home is in memory, before all others.
    std::vector<bool> at_home(count);
    for (const ResidentUse& use : step.problem.uses)
        if (use.at_home) at_home[static_cast<std::size_t>(use.resident)] = true;
    HomePlan result{.residents = step.residents, .homes = std::vector<Home>(count)};
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return std::pair(at_home[a], copies[a]) > std::pair(at_home[b], copies[b]);
    });
    Bytes missing;
    for (std::size_t r : order) {
        Home& home = result.homes[r];
        home.size = step.problem.residents[r];
        const Bytes room{round_up(home.size.count, buffer_alignment)};
        if (always[r] != nullptr) {
            home.offset = always[r]->offset;
        } else if (copies[r] == 0 && !at_home[r]) { // dead between its stays
        } else if (result.host + room <= host_memory) {
            home.tier = Home::Tier::host;
            home.offset = result.host.count;
            result.host += room;
        } else {
            if (at_home[r]) {
                Bytes needed;
                for (std::size_t other : order)
                    if (at_home[other])
                        needed += Bytes{round_up(step.problem.residents[other].count, buffer_alignment)};
                fail("host memory is limited to {}, and the optimizer works on {} there", to_string(host_memory),
                     to_string(needed));
            }
            home.tier = Home::Tier::disk;
            home.offset = result.disk.count;
            result.disk += room;
            missing += room;
        }
    }
    if (!has_disk && missing.count > 0)
        fail("{} of model data do not fit on the device, and host memory is limited to {}: {} more are needed, or a "
             "folder on disk (--disk)",
             to_string(result.host + missing), to_string(host_memory), to_string(missing));
    return result;
}

Homes::Homes(const Device& device, HomePlan plan, std::byte* chunks, const fs::path& disk)
    : plan_(std::move(plan)), chunks_(chunks) {
    for (std::size_t r = 0; r < plan_.residents.size(); ++r)
        numbers_[{plan_.residents[r].region, plan_.residents[r].chunk}] = r;
    if (plan_.host.count > 0) host_ = device.allocate_staging(plan_.host);
    if (plan_.disk.count > 0) file_.emplace(disk, plan_.disk);
}

const Home* Homes::find(const ChunkResident& resident) const {
    const auto at = numbers_.find({resident.region, resident.chunk});
    return at == numbers_.end() ? nullptr : &plan_.homes[at->second];
}

std::byte* Homes::memory(const Home& home) const {
    TUTTI_CHECK(home.tier != Home::Tier::disk, "a chunk on disk has no address");
    return (home.tier == Home::Tier::device ? chunks_ : host_->data()) + home.offset;
}

void Homes::read(const Home& home, std::int64_t offset, std::span<std::byte> out) const {
    if (home.tier == Home::Tier::disk)
        file_->read(home.offset + offset, out);
    else
        std::memcpy(out.data(), memory(home) + offset, out.size());
}

void Homes::write(const Home& home, std::int64_t offset, std::span<const std::byte> in) const {
    if (home.tier == Home::Tier::disk)
        file_->write(home.offset + offset, in);
    else
        std::memcpy(memory(home) + offset, in.data(), in.size());
}

} // namespace tutti

#include "schedule/parameters.h"

#include <algorithm>
#include <array>

namespace tutti::schedule {
namespace {

constexpr std::array<std::string_view, 3> placement_names = {"loop", "wave", "mirrored"};
constexpr std::array<std::string_view, 3> recompute_names = {"never", "on-gradient", "early"};

template <class Enum>
bool parse_one(std::string_view name, const std::array<std::string_view, 3>& names, Enum& value) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return false;
    value = static_cast<Enum>(at - names.begin());
    return true;
}

} // namespace

int rank_of(const ScheduleParameters& parameters, int replica, int stage) {
    const int ranks = parameters.ranks;
    const int turn = stage / ranks;
    const int place = stage % ranks;
    switch (parameters.placement) {
    case StagePlacement::loop: return place;
    case StagePlacement::wave: return turn % 2 == 0 ? place : ranks - 1 - place;
    case StagePlacement::mirrored: break;
    }
    const int pairs = std::max(1, parameters.model_replicas / 2);
    const int rotated = (place + replica / 2 * ranks / pairs) % ranks;
    return replica % 2 == 0 ? rotated : ranks - 1 - rotated;
}

std::string_view name_of(StagePlacement placement) { return placement_names[static_cast<std::size_t>(placement)]; }
std::string_view name_of(Recompute recompute) { return recompute_names[static_cast<std::size_t>(recompute)]; }
bool parse(std::string_view name, StagePlacement& placement) { return parse_one(name, placement_names, placement); }
bool parse(std::string_view name, Recompute& recompute) { return parse_one(name, recompute_names, recompute); }

} // namespace tutti::schedule

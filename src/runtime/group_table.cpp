#include "runtime/group_table.h"

#include <algorithm>

namespace tutti::runtime {

comm::Group& GroupTable::at(const GroupSpec& spec) {
    if (spec.channel == 0) return world_->all();
    auto at = std::ranges::find(groups_, spec, &std::pair<GroupSpec, std::unique_ptr<comm::Group>>::first);
    if (at == groups_.end()) at = groups_.insert(at, {spec, world_->group(spec.name, spec.members, spec.channel)});
    return *at->second;
}

} // namespace tutti::runtime

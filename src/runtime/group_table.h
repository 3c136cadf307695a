// GroupTable: the communication groups that programs name; each is made once per run.
#pragma once

#include "comm/group.h"
#include "program/program.h"

#include <memory>
#include <utility>
#include <vector>

namespace tutti::runtime {

class GroupTable {
  public:
    explicit GroupTable(comm::World& world) : world_(&world) {}

    comm::World& world() const { return *world_; }
    comm::Group& at(const GroupSpec& spec);
    // Ends all groups and their operations under way, before the memory that they write to is freed.
    void end() { groups_.clear(); }

  private:
    comm::World* world_;
    std::vector<std::pair<GroupSpec, std::unique_ptr<comm::Group>>> groups_;
};

} // namespace tutti::runtime

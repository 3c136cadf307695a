// The communication groups of a rank's program; each is added when it is first asked for.
#pragma once

#include "plan/plan.h"
#include "program/program.h"
#include "schedule/parameters.h"

#include <map>
#include <string>
#include <vector>

namespace tutti::compile {

class RankGroups {
  public:
    // `specs`: groups that are named by number already.
    RankGroups(const sharding::Mesh& mesh, const schedule::ScheduleParameters& pipeline, int rank,
               std::vector<GroupSpec> specs = {});

    const sharding::MeshPlace& place() const { return place_; }
    const sharding::Mesh& mesh() const { return mesh_; }

    // Numbers in `specs`. A group of one rank is -1: there is no communication.
    int world();
    int tensor();
    // A part of the tensor axis, which has these sizes.
    int tensor(const std::vector<int>& axes, std::size_t axis);
    int pipe(); // there even where it has one rank: stages of one rank hand over through it
    int data();
    int owners(int stage); // of a stage at this place of the tensor axis: data and model replicas
    // Ranks of this replica and place of the tensor axis that own one of the stages; `number` is the same everywhere.
    int tie(int number, const std::vector<int>& stages);

    const std::vector<GroupSpec>& specs() const { return specs_; }
    const GroupSpec& spec(int group) const { return specs_[static_cast<std::size_t>(group)]; }
    int size(int group) const { return group < 0 ? 1 : static_cast<int>(spec(group).members.size()); }
    int rank_in(int group) const; // 0 in a group of one

  private:
    int add(GroupKind kind, std::string name, std::vector<int> members, int channel, bool even_alone = false);
    std::vector<int> pipe_ranks(int stage) const; // with all model replicas, each once

    sharding::Mesh mesh_;
    schedule::ScheduleParameters pipeline_;
    sharding::MeshPlace place_;
    int rank_;
    std::vector<GroupSpec> specs_;
};

} // namespace tutti::compile

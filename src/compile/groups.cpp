#include "compile/groups.h"

#include <algorithm>

namespace tutti::compile {
namespace {

// Channels tell apart groups that may share two ranks.
constexpr int tensor_channel = 1, pipe_channel = 2, data_channel = 3, first_axis_channel = 4,
              first_stage_channel = 16; // at most 8 axes between

} // namespace

RankGroups::RankGroups(const sharding::Mesh& mesh, const schedule::ScheduleParameters& pipeline, int rank,
                       std::vector<GroupSpec> specs)
    : mesh_(mesh), pipeline_(pipeline), place_(mesh.place_of(rank)), rank_(rank), specs_(std::move(specs)) {}

int RankGroups::rank_in(int group) const {
    if (group < 0) return 0;
    const std::vector<int>& members = spec(group).members;
    return static_cast<int>(std::ranges::find(members, rank_) - members.begin());
}

int RankGroups::add(GroupKind kind, std::string name, std::vector<int> members, int channel, bool even_alone) {
    if (members.size() == 1 && !even_alone) return -1;
    const bool across = std::ranges::any_of(
        members, [&](int member) { return mesh_.place_of(member).pipe != mesh_.place_of(members[0]).pipe; });
    GroupSpec spec{std::move(name), std::move(members), channel, across, kind};
    auto at = std::ranges::find(specs_, spec);
    if (at == specs_.end()) at = specs_.insert(at, std::move(spec));
    return static_cast<int>(at - specs_.begin());
}

int RankGroups::world() {
    std::vector<int> members;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) members.push_back(rank);
    return add(GroupKind::world, "world", std::move(members), 0);
}

int RankGroups::tensor() {
    std::vector<int> members;
    for (int t = 0; t < mesh_.tensor; ++t) members.push_back(mesh_.rank_of({place_.pipe, place_.data, t}));
    return add(GroupKind::tensor, "tensor", std::move(members), tensor_channel);
}

int RankGroups::tensor(const std::vector<int>& axes, std::size_t axis) {
    if (axes.size() < 2) return tensor();
    int stride = 1;
    for (std::size_t a = axis + 1; a < axes.size(); ++a) stride *= axes[a];
    const int first = place_.tensor - place_.tensor / stride % axes[axis] * stride;
    std::vector<int> members;
    for (int i = 0; i < axes[axis]; ++i)
        members.push_back(mesh_.rank_of({place_.pipe, place_.data, first + i * stride}));
    return add(GroupKind::tensor, "tensor." + std::to_string(axis), std::move(members),
               first_axis_channel + static_cast<int>(axis));
}

int RankGroups::pipe() {
    std::vector<int> members;
    for (int p = 0; p < mesh_.pipe; ++p) members.push_back(mesh_.rank_of({p, place_.data, place_.tensor}));
    return add(GroupKind::pipe, "pipe", std::move(members), pipe_channel, true);
}

int RankGroups::data() {
    std::vector<int> members;
    for (int d = 0; d < mesh_.data; ++d) members.push_back(mesh_.rank_of({place_.pipe, d, place_.tensor}));
    return add(GroupKind::data, "data", std::move(members), data_channel);
}

std::vector<int> RankGroups::pipe_ranks(int stage) const {
    std::vector<int> ranks;
    for (int replica = 0; replica < pipeline_.model_replicas; ++replica)
        if (const int rank = schedule::rank_of(pipeline_, replica, stage);
            std::ranges::find(ranks, rank) == ranks.end())
            ranks.push_back(rank);
    return ranks;
}

int RankGroups::owners(int stage) {
    std::vector<int> members;
    for (int p : pipe_ranks(stage))
        for (int d = 0; d < mesh_.data; ++d) members.push_back(mesh_.rank_of({p, d, place_.tensor}));
    return add(GroupKind::owners, "owners of stage " + std::to_string(stage), std::move(members),
               first_stage_channel + stage);
}

int RankGroups::tie(int number, const std::vector<int>& stages) {
    std::vector<int> members;
    for (int stage : stages)
        for (int p : pipe_ranks(stage))
            if (const int rank = mesh_.rank_of({p, place_.data, place_.tensor});
                std::ranges::find(members, rank) == members.end())
                members.push_back(rank);
    return add(GroupKind::owners, "owners of a tied tensor", std::move(members),
               first_stage_channel + pipeline_.stages() + number);
}

} // namespace tutti::compile

// What ranks own and save of a model, over all ranks of a mesh.
#include "compile/ownership.h"

#include "compile/compile.h"
#include "models/model.h"
#include "schedule/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tutti {

using namespace compile;
using namespace memory;
using namespace models;
using namespace schedule;
using namespace sharding;
namespace {

Plan planned(const Mesh& mesh, int zero) {
    Plan plan;
    plan.mesh = mesh;
    plan.zero = zero;
    plan.workload = {16, 4 * mesh.data, 2};
    plan.chunk_elements = 3000;
    if (mesh.pipe == 1) return plan;
    const ScheduleParameters parameters =
        resolve({.family = "1f1b", .ranks = mesh.pipe, .micro_batches = static_cast<int>(plan.micro_batches())});
    const Costs costs = uniform_costs(parameters, {});
    plan.schedule = PlannedSchedule{make_schedule(parameters, costs), costs};
    plan.cuts = {2};
    return plan;
}

// Of gpt2-tiny, whose first and last stage share the embedding.
class OwnedByRanks {
  public:
    OwnedByRanks(const Mesh& mesh, int zero) : model_(open_model("gpt2-tiny").build({2, 16, DType::float32})) {
        const Plan plan = planned(mesh, zero);
        for (int rank = 0; rank < mesh.ranks(); ++rank)
            ranks.push_back(compile::compile(model_.graph, plan, rank).ownership);
    }

    // How many ranks save each element of a tensor, by its name.
    std::map<std::string, std::vector<int>> saved() const {
        std::map<std::string, std::vector<int>> times;
        for (const StoredTensor& stored : model_.graph.stored())
            times[stored.name].resize(static_cast<std::size_t>(stored.type.elements()));
        for (const Ownership& rank : ranks)
            for (std::size_t t = 0; t < rank.tensors.size(); ++t) {
                const ChunkTensor& tensor = rank.layout.tensors[t];
                const Range saved = rank.saved[static_cast<std::size_t>(tensor.chunk)];
                const std::int64_t begin = std::max(saved.begin, tensor.range().begin),
                                   end = std::min(saved.end, tensor.range().end);
                if (begin >= end) continue;
                for (const SliceRun& run : rank.tensors[t].slice.runs({begin - tensor.offset, end - tensor.offset}))
                    for (std::int64_t i = run.whole; i < run.whole + run.count; ++i)
                        ++times.at(rank.tensors[t].name)[static_cast<std::size_t>(i)];
            }
        return times;
    }

    std::vector<Ownership> ranks;

  private:
    Model model_;
};

TEST(Ownership, OverAllRanksEveryElementIsSavedOnce) {
    for (const Mesh& mesh : {Mesh{.pipe = 1}, Mesh{.pipe = 2, .data = 2}, Mesh{.data = 3, .tensor = 2},
                             Mesh{.pipe = 2, .data = 2, .tensor = 2}})
        for (const int zero : {0, 1, 2, 3}) {
            const OwnedByRanks owned(mesh, zero);
            for (const auto& [name, times] : owned.saved())
                EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << name << ", " << to_string(mesh) << ", " << zero;
        }
}

// ZeRO's stages as the paper has them: the first shards optimizer states, the second gradients too, the third weights.
TEST(Ownership, ListsOfChunksAreShardedByTheStageOfZero) {
    for (const int zero : {0, 1, 2, 3}) {
        const OwnedByRanks owned({.data = 2}, zero);
        const auto first = owned.ranks[0].owned_ranges(zero), second = owned.ranks[1].owned_ranges(zero);
        for (const auto& [region, from] : {std::pair{Region::master, 1},
                                           {Region::moments1, 1},
                                           {Region::moments2, 1},
                                           {Region::gradients, 2},
                                           {Region::weights, 3}})
            for (std::size_t c = 0; c < owned.ranks[0].layout.chunks.size(); ++c) {
                const Range whole{0, owned.ranks[0].layout.chunks[c].elements};
                const auto r = static_cast<std::size_t>(region);
                EXPECT_EQ(first[r][c], zero >= from ? (Range{0, whole.end / 2}) : whole) << name_of(region);
                EXPECT_EQ(second[r][c], zero >= from ? (Range{whole.end / 2, whole.end}) : whole) << name_of(region);
            }
    }
}

// A number names the same tensor in every list, and each is there once.
TEST(Ownership, NumbersOfTensorsAreThoseOfTheLayout) {
    const OwnedByRanks owned({.data = 2, .tensor = 2}, 1);
    for (const Ownership& rank : owned.ranks) {
        ASSERT_EQ(rank.tensors.size(), rank.layout.tensors.size());
        std::map<std::string, int> names;
        for (std::size_t t = 0; t < rank.tensors.size(); ++t) {
            EXPECT_EQ(rank.tensors[t].slice.elements(), rank.layout.tensors[t].elements) << rank.tensors[t].name;
            EXPECT_EQ(++names[rank.tensors[t].name], 1);
        }
    }
}

} // namespace
} // namespace tutti

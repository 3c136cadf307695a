// Ownership: the model data of a rank. Which stored tensors it owns, of which stages, and how their chunks are reduced,
// sharded and counted. Ranks that own the same stage compute the same layout, each for itself.
#pragma once

#include "compile/graphs/rank_stage.h"
#include "compile/groups.h"
#include "memory/owned_model.h"

#include <array>
#include <vector>

namespace tutti::compile {

// What tensors of a chunk have in common.
struct ChunkKind {
    std::vector<int> stages{};      // of this rank
    std::vector<bool> partial{};    // per part of the tensor axis: gradients are partial sums along it
    std::vector<bool> replicated{}; // per part of the tensor axis: all ranks along it own the same
    int tie = -1;                   // several stages of the model use it: number of that set of stages

    // Gradients are summed over these groups, one after the other. None: over nobody.
    std::vector<int> reductions{};
    // The last of them, over which ZeRO shards the chunk; -1: it is not sharded.
    int sharded_over = -1;
    int shard_count = 1, shard_rank = 0;
    bool counts = true; // in the norm, and in what this rank writes: of equal owners one does

    bool operator==(const ChunkKind&) const = default;
};

struct Ownership : memory::OwnedModel {
    std::vector<ChunkKind> kinds;
    std::vector<GroupSpec> groups; // that kinds name by number

    const ChunkKind& kind_of(std::size_t chunk) const {
        return kinds[static_cast<std::size_t>(layout.chunks[chunk].kind)];
    }
    // Per list of chunks, and per chunk: the elements that are in this rank's memory.
    std::array<std::vector<Range>, memory::chunk_region_count> owned_ranges(Zero zero) const;
    // Of every stored tensor of a graph its number here, found by its name.
    std::vector<std::int32_t> tensors_of(const Graph& graph) const;
    // The part of a chunk that this rank owns where the chunk is sharded.
    Range share(std::size_t chunk) const;
};

// Gradients of chunks that several stages of a rank contribute to, or that are owned as a share, are cleared before a
// step; all others are overwritten by the first contribution.
bool is_cleared_first(const ChunkKind& kind, Zero zero);
// One reduction is all it needs, and one stage here contributes: it need not wait for the end of the step.
bool reduces_early(const ChunkKind& kind, Zero zero);

// `axes`: the sizes of the tensor axis' parts.
Ownership find_ownership(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups,
                         const std::vector<int>& axes, std::int64_t chunk_elements, Zero zero);

} // namespace tutti::compile

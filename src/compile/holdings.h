// Holdings: the model data of a rank. Which stored tensors it holds, of which stages, and how their chunks are reduced,
// spread and counted. Ranks that hold the same stage lay it out alike, each for itself.
#pragma once

#include "compile/graphs/rank_stage.h"
#include "compile/groups.h"
#include "memory/chunks.h"
#include "memory/holding.h"

#include <map>
#include <string>
#include <vector>

namespace tutti::compile {

struct RankTensor {
    std::string name;
    TensorType type; // of the slice
    sharding::TensorSlice slice;
    std::vector<int> stages{}; // of this rank that use it, by their place among the rank's
    int kind = 0;              // of its chunk
};

// What tensors of a chunk have in common.
struct ChunkKind {
    std::vector<int> stages{};      // of this rank
    std::vector<bool> partial{};    // per part of the tensor axis: gradients are partial sums along it
    std::vector<bool> replicated{}; // per part of the tensor axis: all ranks along it hold the same
    int tie = -1;                   // several stages of the model use it: number of that set of stages

    // Gradients are summed over these groups, one after the other. None: over nobody.
    std::vector<int> reductions{};
    // The last of them, over which ZeRO spreads the chunk; -1: it is not spread.
    int spread_over = -1;
    int spread_size = 1, spread_rank = 0;
    bool counts = true; // in the norm, and in what this rank writes: of equal holders one does

    bool operator==(const ChunkKind&) const = default;
};

struct Holdings {
    std::vector<RankTensor> tensors;
    std::vector<ChunkKind> kinds;
    memory::ChunkLayout chunks;
    std::vector<GroupSpec> groups; // that kinds name by number

    const ChunkKind& kind_of(std::size_t chunk) const {
        return kinds[static_cast<std::size_t>(chunks.chunks[chunk].kind)];
    }
    // What of the chunks is kept here, and which of it this rank saves.
    memory::Holding holding(Zero zero) const;
    // Of every stored tensor of a graph, found by its name.
    std::vector<std::int32_t> places_of(const Graph& graph) const;
    // The part of a chunk that this rank keeps where the chunk is spread.
    Range share(std::size_t chunk) const;
};

// Gradients of chunks that several stages of a rank contribute to, or that are kept as a share, are cleared before a
// step; all others are overwritten by the first contribution.
bool is_cleared_first(const ChunkKind& kind, Zero zero);
// One reduction is all it needs, and one stage here contributes: it need not wait for the end of the step.
bool reduces_early(const ChunkKind& kind, Zero zero);

// `axes`: the sizes of the tensor axis' parts.
Holdings find_holdings(std::span<const RankStage> stages, const Ties& ties, RankGroups& groups,
                       const std::vector<int>& axes, std::int64_t chunk_elements, Zero zero);

} // namespace tutti::compile

#include "memory/chunks.h"

#include "base/checked.h"

#include <set>

namespace tutti {
namespace {

// The stored tensors in order, those of a run together.
std::vector<std::vector<std::int32_t>> runs_of(const Graph& graph) {
    std::vector<const Parameter*> run(graph.stored().size(), nullptr); // that each is in
    for (const Parameter& parameter : graph.parameters())
        if (!parameter.further.empty())
            for (std::int32_t stored : parameter.run()) run[static_cast<std::size_t>(stored)] = &parameter;
    std::vector<std::vector<std::int32_t>> runs;
    std::set<const Parameter*> seen;
    for (std::size_t i = 0; i < run.size(); ++i) {
        if (run[i] == nullptr)
            runs.push_back({narrow<std::int32_t>(i)});
        else if (seen.insert(run[i]).second)
            runs.push_back(run[i]->run());
    }
    return runs;
}

} // namespace

std::int64_t ChunkLayout::elements() const {
    std::int64_t total = 0;
    for (const Chunk& chunk : chunks) total += chunk.elements;
    return total;
}

ChunkLayout lay_out_chunks(const Graph& graph, std::int64_t capacity) {
    std::vector<int> contributions(graph.stored().size(), 0);
    for (const Output& output : graph.outputs())
        if (const Parameter* parameter =
                output.parameter == ValueId::none ? nullptr : graph.parameter_of(output.parameter))
            for (std::int32_t stored : parameter->run()) ++contributions[static_cast<std::size_t>(stored)];

    ChunkLayout layout;
    layout.places.resize(graph.stored().size());
    std::int32_t open = -1, ties = 0; // the chunk that still takes entries
    for (const std::vector<std::int32_t>& run : runs_of(graph)) {
        std::int64_t all = 0;
        bool tied = false;
        for (std::int32_t stored : run) {
            all += round_up(graph.stored()[static_cast<std::size_t>(stored)].type.elements(), chunk_alignment);
            tied |= contributions[static_cast<std::size_t>(stored)] > 1;
        }
        const bool alone = tied || all > capacity;
        if (alone || open < 0 || layout.chunks[static_cast<std::size_t>(open)].elements + all > capacity) {
            layout.chunks.emplace_back();
            if (!alone) open = narrow<std::int32_t>(layout.chunks.size() - 1);
        }
        const auto number = alone ? layout.chunks.size() - 1 : static_cast<std::size_t>(open);
        Chunk& chunk = layout.chunks[number];
        for (std::int32_t stored : run) {
            const auto i = static_cast<std::size_t>(stored);
            const TensorType& type = graph.stored()[i].type;
            chunk.entries.push_back({.stored = stored,
                                     .first = 0,
                                     .count = type.elements(),
                                     .offset = chunk.elements,
                                     .decays = type.shape.rank() >= 2,
                                     .trained = contributions[i] > 0,
                                     .counted_in_norm = true,
                                     .tie_group = tied ? ties++ : -1});
            layout.places[i] = {narrow<std::int32_t>(number), chunk.elements};
            chunk.elements += round_up(type.elements(), chunk_alignment);
        }
    }
    return layout;
}

} // namespace tutti

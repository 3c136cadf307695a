#include "memory/chunks.h"

#include "base/checked.h"

namespace tutti {

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
            ++contributions[static_cast<std::size_t>(parameter->stored)];

    ChunkLayout layout;
    layout.places.resize(graph.stored().size());
    std::int32_t open = -1, ties = 0; // the chunk that still takes entries
    for (std::size_t i = 0; i < graph.stored().size(); ++i) {
        const TensorType& type = graph.stored()[i].type;
        const std::int64_t count = type.elements(), padded = round_up(count, chunk_alignment);
        const bool tied = contributions[i] > 1;
        const bool alone = tied || padded > capacity;
        if (alone || open < 0 || layout.chunks[static_cast<std::size_t>(open)].elements + padded > capacity) {
            layout.chunks.emplace_back();
            if (!alone) open = narrow<std::int32_t>(layout.chunks.size() - 1);
        }
        const auto number = alone ? layout.chunks.size() - 1 : static_cast<std::size_t>(open);
        Chunk& chunk = layout.chunks[number];
        chunk.entries.push_back({.stored = narrow<std::int32_t>(i),
                                 .first = 0,
                                 .count = count,
                                 .offset = chunk.elements,
                                 .decays = type.shape.rank() >= 2,
                                 .trained = contributions[i] > 0,
                                 .counted_in_norm = true,
                                 .tie_group = tied ? ties++ : -1});
        layout.places[i] = {narrow<std::int32_t>(number), chunk.elements};
        chunk.elements += padded;
    }
    return layout;
}

} // namespace tutti

#include "offload/chunk_size.h"

#include "base/checked.h"
#include "graph/merge.h"

#include <algorithm>
#include <set>

namespace tutti::offload {

double utilisation(const memory::ChunkLayout& layout) {
    std::int64_t used = 0;
    for (const memory::ChunkTensor& tensor : layout.tensors) used += tensor.elements;
    return layout.elements() > 0 ? static_cast<double>(used) / static_cast<double>(layout.elements()) : 1;
}

namespace {

std::int64_t about_a_layer(std::span<const Block> blocks) {
    std::vector<std::int64_t> sizes;
    for (const Block& block : blocks) sizes.push_back(block.parameters);
    std::ranges::sort(sizes);
    return std::max<std::int64_t>(sizes.empty() ? 0 : 2 * sizes[sizes.size() / 2], memory::chunk_alignment);
}

} // namespace

ChunkFit chunk_fit(std::span<const memory::ChunkTensor> tensors, std::span<const Block> blocks, std::int64_t capacity) {
    const memory::ChunkLayout layout = memory::lay_out_chunks(tensors, capacity);
    std::int64_t used = 0, touched = 0, largest = 0, even = 0;
    for (const Block& block : blocks) {
        std::set<std::int32_t> chunks;
        for (std::int32_t stored : block.stored) {
            used += tensors[static_cast<std::size_t>(stored)].elements;
            chunks.insert(layout.tensor(stored).chunk);
        }
        for (std::int32_t chunk : chunks) touched += layout.chunks[static_cast<std::size_t>(chunk)].elements;
    }
    // Embedding and head are few, and of other sizes.
    auto is_regular = [&](const memory::Chunk& chunk) {
        const memory::ChunkTensor& first = layout.tensor(chunk.tensors.front());
        return !first.alone && first.block > 0 && first.block + 1 < static_cast<int>(blocks.size());
    };
    for (const memory::Chunk& chunk : layout.chunks)
        if (is_regular(chunk)) largest = std::max(largest, chunk.elements);
    for (const memory::Chunk& chunk : layout.chunks) even += is_regular(chunk) ? largest : chunk.elements;
    auto ratio = [](std::int64_t a, std::int64_t b) {
        return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1;
    };
    return {.capacity = capacity,
            .utilisation = utilisation(layout),
            .touched = ratio(touched, used),
            .even = ratio(even, layout.elements())};
}

ChunkFit best_chunk_fit(std::span<const memory::ChunkTensor> tensors, std::span<const Block> blocks) {
    const std::int64_t most = about_a_layer(blocks);
    // Chunks below this take longer to ask for than to copy; of small models all tensors are.
    const std::int64_t least = std::min<std::int64_t>(most / 2, std::int64_t{1} << 22);
    std::set<std::int64_t> candidates = {most};
    for (std::size_t first = 0; first < tensors.size(); ++first) {
        std::int64_t sum = 0;
        for (std::size_t i = first; i < tensors.size(); ++i) {
            sum += round_up(tensors[i].elements, memory::chunk_alignment);
            if (sum > most) break;
            if (sum >= least) candidates.insert(sum);
        }
    }
    // The smallest of those that are as good as any. What is copied in vain counts more than what does not fit well.
    ChunkFit best;
    auto cost = [](const ChunkFit& fit) { return 4 * fit.touched + fit.even + 4 / fit.utilisation; };
    for (std::int64_t capacity : candidates)
        if (const ChunkFit fit = chunk_fit(tensors, blocks, capacity);
            best.capacity == 0 || cost(fit) < cost(best) - 0.01)
            best = fit;
    return best;
}

ChunkFit best_chunk_fit(const Graph& forward) {
    const std::vector<Block> blocks = find_blocks(forward);
    ValueId none = ValueId::none;
    std::vector<memory::ChunkTensor> tensors = memory::chunk_tensors(merge_linears(forward, none));
    for (memory::ChunkTensor& tensor : tensors) tensor.block = -1;
    // Ties have chunks of their own.
    for (std::size_t b = blocks.size(); b-- > 0;)
        for (std::int32_t stored : blocks[b].stored) {
            memory::ChunkTensor& tensor = tensors[static_cast<std::size_t>(stored)];
            tensor.alone = tensor.block >= 0;
            tensor.block = static_cast<int>(b);
        }
    return best_chunk_fit(tensors, blocks);
}

} // namespace tutti::offload

#include "memory/chunks.h"

#include "base/checked.h"

#include <algorithm>
#include <map>

namespace tutti {

std::int64_t ChunkLayout::elements() const {
    std::int64_t total = 0;
    for (const Chunk& chunk : chunks) total += chunk.elements;
    return total;
}

std::vector<ChunkTensor> chunk_tensors(const Graph& graph) {
    std::vector<ChunkTensor> tensors;
    for (const StoredTensor& stored : graph.stored())
        tensors.push_back({.elements = stored.type.elements(), .decays = stored.type.shape.rank() >= 2});
    std::vector<int> contributions(tensors.size(), 0);
    for (const Output& output : graph.outputs())
        if (output.parameter != ValueId::none)
            for (std::int32_t stored : graph.parameter_of(output.parameter)->run())
                ++contributions[static_cast<std::size_t>(stored)];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].trained = contributions[i] > 0;
        tensors[i].alone = contributions[i] > 1;
    }
    int runs = 0;
    for (const Parameter& parameter : graph.parameters()) {
        if (parameter.further.empty()) continue;
        bool tied = false;
        for (std::int32_t stored : parameter.run()) tied |= tensors[static_cast<std::size_t>(stored)].alone;
        int place = 0;
        for (std::int32_t stored : parameter.run()) {
            ChunkTensor& tensor = tensors[static_cast<std::size_t>(stored)];
            tensor.run = runs;
            tensor.place = place++;
            tensor.alone = tied;
        }
        ++runs;
    }
    return tensors;
}

namespace {

// The tensors in order, those of a run together, in the order of the run.
std::vector<std::vector<std::int32_t>> runs_of(std::span<const ChunkTensor> tensors) {
    std::vector<std::vector<std::int32_t>> runs;
    std::map<int, std::size_t> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const int run = tensors[i].run;
        const auto [at, is_new] = run < 0 ? std::pair(places.end(), true) : places.try_emplace(run, runs.size());
        if (is_new) runs.emplace_back();
        runs[is_new ? runs.size() - 1 : at->second].push_back(narrow<std::int32_t>(i));
    }
    for (std::vector<std::int32_t>& run : runs)
        std::ranges::sort(run, {}, [&](std::int32_t i) { return tensors[static_cast<std::size_t>(i)].place; });
    return runs;
}

} // namespace

ChunkLayout lay_out_chunks(std::span<const ChunkTensor> tensors, std::int64_t capacity,
                           std::span<const std::int64_t> multiples) {
    ChunkLayout layout;
    layout.places.resize(tensors.size());
    std::map<int, std::size_t> open; // per kind, the chunk that still takes entries
    for (const std::vector<std::int32_t>& run : runs_of(tensors)) {
        std::int64_t all = 0;
        for (std::int32_t i : run) all += round_up(tensors[static_cast<std::size_t>(i)].elements, chunk_alignment);
        const ChunkTensor& first = tensors[static_cast<std::size_t>(run.front())];
        const bool alone = first.alone || all > capacity;
        const auto found = open.find(first.kind);
        std::size_t number = layout.chunks.size();
        if (!alone && found != open.end() && layout.chunks[found->second].elements + all <= capacity)
            number = found->second;
        else
            layout.chunks.push_back({.kind = first.kind});
        if (!alone) open[first.kind] = number;
        Chunk& chunk = layout.chunks[number];
        for (std::int32_t stored : run) {
            const ChunkTensor& tensor = tensors[static_cast<std::size_t>(stored)];
            chunk.entries.push_back({stored, tensor.elements, chunk.elements, tensor.decays, tensor.trained});
            layout.places[static_cast<std::size_t>(stored)] = {narrow<std::int32_t>(number), chunk.elements};
            chunk.elements += round_up(tensor.elements, chunk_alignment);
        }
    }
    for (Chunk& chunk : layout.chunks)
        if (static_cast<std::size_t>(chunk.kind) < multiples.size())
            chunk.elements = round_up(chunk.elements, multiples[static_cast<std::size_t>(chunk.kind)]);
    return layout;
}

} // namespace tutti

#include "memory/chunks.h"

#include "base/checked.h"

#include <algorithm>
#include <map>

namespace tutti::memory {

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
    for (const Node& node : graph.nodes())
        for (ValueId input : node.inputs) {
            const Parameter* parameter = graph.parameter_of(graph.value(input).storage);
            if (parameter == nullptr) continue;
            for (std::int32_t stored : parameter->run()) {
                ChunkTensor& tensor = tensors[static_cast<std::size_t>(stored)];
                if (tensor.block < 0) tensor.block = node.block;
                if (node.op->kernel_class == KernelClass::head) tensor.alone = true;
            }
        }
    // On one rank of the tensor axis alone the forward adds the bias of a split product, while all have its gradient.
    // Ranks that sum gradients have to lay out the same chunks.
    for (const Output& output : graph.outputs()) {
        if (output.parameter == ValueId::none) continue;
        const NodeId made = graph.value(graph.value(output.value).storage).producer;
        if (made == NodeId::none) continue;
        for (std::int32_t stored : graph.parameter_of(output.parameter)->run())
            if (int& block = tensors[static_cast<std::size_t>(stored)].block; block < 0) block = graph.node(made).block;
    }
    int runs = 0;
    for (const Parameter& parameter : graph.parameters()) {
        if (parameter.further.empty()) continue;
        bool alone = false;
        for (std::int32_t stored : parameter.run()) alone |= tensors[static_cast<std::size_t>(stored)].alone;
        int place = 0;
        for (std::int32_t stored : parameter.run()) {
            ChunkTensor& tensor = tensors[static_cast<std::size_t>(stored)];
            tensor.run = runs;
            tensor.place_in_run = place++;
            tensor.alone = alone;
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
        std::ranges::sort(run, {}, [&](std::int32_t i) { return tensors[static_cast<std::size_t>(i)].place_in_run; });
    return runs;
}

} // namespace

ChunkLayout lay_out_chunks(std::span<const ChunkTensor> tensors, std::int64_t capacity,
                           std::span<const std::int64_t> multiples) {
    ChunkLayout layout;
    layout.tensors.assign(tensors.begin(), tensors.end());
    struct Open { // the chunk of a kind that still takes tensors
        std::size_t chunk = 0;
        int block = -1; // of its last one
    };
    std::map<int, Open> open;
    const std::vector<std::vector<std::int32_t>> runs = runs_of(tensors);
    auto first_of = [&](const auto& run) -> const ChunkTensor& {
        return tensors[static_cast<std::size_t>(run.front())];
    };
    auto size_of_run = [&](const std::vector<std::int32_t>& run) {
        std::int64_t all = 0;
        for (std::int32_t i : run) all += round_up(tensors[static_cast<std::size_t>(i)].elements, chunk_alignment);
        return all;
    };
    std::map<std::pair<int, int>, std::int64_t> blocks; // elements of a block that are of a kind, and share chunks
    for (const auto& run : runs)
        if (const ChunkTensor& first = first_of(run); !first.alone)
            blocks[{first.kind, first.block}] += size_of_run(run);
    for (const std::vector<std::int32_t>& run : runs) {
        const std::int64_t all = size_of_run(run);
        const ChunkTensor& first = first_of(run);
        const bool alone = first.alone || all > capacity;
        const auto found = open.find(first.kind);
        std::size_t number = layout.chunks.size();
        const bool begins = found != open.end() && first.block >= 0 && found->second.block != first.block;
        const std::int64_t needed = begins ? std::max(all, blocks[{first.kind, first.block}]) : all;
        if (!alone && found != open.end() && layout.chunks[found->second.chunk].elements + needed <= capacity)
            number = found->second.chunk;
        else
            layout.chunks.push_back({.kind = first.kind});
        if (!alone) open[first.kind] = {number, first.block};
        Chunk& chunk = layout.chunks[number];
        for (std::int32_t stored : run) {
            ChunkTensor& tensor = layout.tensors[static_cast<std::size_t>(stored)];
            tensor.chunk = narrow<std::int32_t>(number);
            tensor.offset = chunk.elements;
            chunk.tensors.push_back(stored);
            chunk.elements += round_up(tensor.elements, chunk_alignment);
        }
    }
    for (Chunk& chunk : layout.chunks)
        if (static_cast<std::size_t>(chunk.kind) < multiples.size())
            chunk.elements = round_up(chunk.elements, multiples[static_cast<std::size_t>(chunk.kind)]);
    return layout;
}

} // namespace tutti::memory

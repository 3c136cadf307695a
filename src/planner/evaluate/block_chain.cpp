#include "planner/evaluate/block_chain.h"

#include "graph/blocks.h"
#include "models/depth.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti::planner {
namespace {

// What a block computes, in words in which names of layers do not occur.
std::string signature_of(const Graph& graph, const Block& block) {
    std::string text;
    for (ValueId input : block.inputs) text += to_string(graph.type(input)) + ";";
    for (NodeId id : block.nodes) {
        const Node& node = graph.node(id);
        text += std::string(node.op->name) + "(";
        for (ValueId input : node.inputs)
            text += to_string(graph.type(input)) + (graph.parameter_of(input) != nullptr ? "p," : ",");
        for (const auto& [name, value] : node.attributes.entries()) text += name + "=" + tutti::to_string(value) + ",";
        text += ")";
    }
    for (std::int32_t stored : block.stored)
        text += to_string(graph.stored()[static_cast<std::size_t>(stored)].type) + ";";
    return text;
}

struct Blocks {
    std::vector<std::string> signatures;
    std::vector<Block> blocks;
    models::Model model;
};

Blocks blocks_of(const models::ModelSource& source, std::int64_t sequence, DType dtype) {
    models::Model model = source.build({1, sequence, dtype});
    std::vector<Block> blocks = find_blocks(model.graph);
    std::vector<std::string> signatures;
    for (const Block& block : blocks) signatures.push_back(signature_of(model.graph, block));
    return {std::move(signatures), std::move(blocks), std::move(model)};
}

using Windows = std::set<std::vector<std::string_view>>;

Windows windows_in(const std::vector<std::string>& signatures) {
    Windows all;
    for (std::size_t b = 0; b < signatures.size(); ++b) {
        std::vector<std::string_view> window;
        for (std::size_t k = b; k < std::min(b + BlockChain::longest_window, signatures.size()); ++k) {
            window.push_back(signatures[k]);
            all.insert(window);
        }
    }
    return all;
}

// The fewest layers that show all windows of the whole model.
models::ModelSource smallest_sample(const models::ModelSource& source, const Windows& wanted, std::int64_t sequence,
                                    DType dtype) {
    for (std::int64_t layers : {1, 2, 3, 4, 6, 8, 12, 16}) {
        if (layers >= models::layers_of(source)) break;
        models::ModelSource fewer = models::with_layers(source, layers);
        const Blocks found = blocks_of(fewer, sequence, dtype);
        if (std::ranges::includes(windows_in(found.signatures), wanted)) return fewer;
    }
    return source;
}

void find_ties(const Blocks& whole, BlockChain& chain) {
    std::map<std::int32_t, std::vector<int>> users;
    for (std::size_t b = 0; b < whole.blocks.size(); ++b)
        for (std::int32_t stored : whole.blocks[b].stored) users[stored].push_back(static_cast<int>(b));
    for (const auto& [stored, blocks] : users) {
        const StoredTensor& tensor = whole.model.graph.stored()[static_cast<std::size_t>(stored)];
        if (blocks.size() > 1) chain.ties.push_back({tensor.name, blocks, tensor.type.elements()});
    }
}

} // namespace

BlockChain chain_of(const models::ModelSource& source, std::int64_t sequence, DType dtype) {
    const Blocks whole = blocks_of(source, sequence, dtype);
    BlockChain chain{.sample = smallest_sample(source, windows_in(whole.signatures), sequence, dtype)};
    chain.model = whole.model.architecture;
    chain.sequence = sequence;
    chain.dtype = dtype;
    std::map<std::string, int> numbers;
    for (std::size_t b = 0; b < whole.blocks.size(); ++b) {
        const auto [at, is_new] = numbers.try_emplace(whole.signatures[b], static_cast<int>(numbers.size()));
        chain.classes.push_back(at->second);
        chain.parameters.push_back(whole.blocks[b].parameters);
        chain.forward_flops += whole.blocks[b].forward.flops.count;
    }
    chain.all_parameters = whole.model.graph.stored_elements();
    find_ties(whole, chain);

    const Blocks sample = blocks_of(chain.sample, sequence, dtype);
    chain.sample_blocks = static_cast<int>(sample.blocks.size());
    for (std::size_t b = 0; b < sample.blocks.size(); ++b) {
        std::vector<int> window;
        for (std::size_t k = b; k < std::min(b + BlockChain::longest_window, sample.blocks.size()); ++k) {
            const auto found = numbers.find(sample.signatures[k]);
            if (found == numbers.end()) break;
            window.push_back(found->second);
            chain.windows.try_emplace(window, static_cast<int>(b));
        }
    }
    return chain;
}

} // namespace tutti::planner

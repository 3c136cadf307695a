#include "compile/graphs/recompute.h"

#include "compile/graphs/stages.h"
#include "graph/passes.h"
#include "graph/rewriter.h"

#include <algorithm>
#include <map>
#include <set>

namespace tutti::compile {
namespace {

// What of a step graph's forward its later passes read, and what of that can be made again.
class Activations {
  public:
    explicit Activations(const Graph& graph)
        : graph_(graph), constant_(graph.values().size(), false), crosses_(graph.values().size(), false),
          of_sum_(graph.nodes().size(), false) {
        std::vector<int> readers(graph.values().size(), 0); // in the forward, by storage
        std::vector<bool> returned(graph.values().size(), false);
        for (const Output& output : graph.outputs())
            if (output.parameter == ValueId::none) returned[root(output.value)] = crosses_[root(output.value)] = true;
        for (const Node& node : graph.nodes()) {
            mark_constant(node);
            if (node.phase != Phase::forward || node.op->view) continue;
            for (ValueId input : node.inputs) {
                ++readers[root(input)];
                const NodeId producer = graph.values()[root(input)].producer;
                if (producer != NodeId::none && graph.node(producer).block != node.block) crosses_[root(input)] = true;
            }
        }
        for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
            const Node& node = graph.nodes()[i];
            if (!is_added_norm(node) || node.phase != Phase::forward) continue;
            const std::size_t sum = index(node.outputs[0]), normed = index(node.outputs[1]);
            of_sum_[i] = readers[sum] > 0 || crosses_[sum] || crosses_[normed];
            if (!of_sum_[i]) continue;
            crosses_[sum] = true; // where the norm crosses, the sum is kept in its place
            crosses_[normed] = returned[normed];
        }
    }

    const Graph& graph() const { return graph_; }
    std::size_t root(ValueId value) const { return index(graph_.value(value).storage); }
    // Whether the node is a norm of a sum that is kept whatever is recomputed.
    bool is_of_kept_sum(NodeId node) const { return of_sum_[index(node)]; }

    // Whether a storage of the forward is gone when the activations of these blocks are not kept.
    bool drops(std::size_t storage, const std::set<int>& blocks) const {
        const NodeId producer = graph_.values()[storage].producer;
        if (producer == NodeId::none || constant_[storage] || crosses_[storage]) return false;
        const Node& node = graph_.node(producer);
        if (is_gathered_vector(node)) return false;
        return node.phase == Phase::forward && blocks.contains(node.block);
    }
    // Whether a value has to be made again to be read later. A later pass's views of it are made there in any case.
    bool is_dropped(ValueId value, const std::set<int>& blocks) const {
        const NodeId producer = graph_.value(value).producer;
        return producer != NodeId::none && graph_.node(producer).phase == Phase::forward && drops(root(value), blocks);
    }

    // What a node that is computed again reads.
    std::vector<ValueId> inputs_when_recomputed(NodeId id) const {
        const Node& node = graph_.node(id);
        std::vector<ValueId> inputs = node.inputs;
        if (is_of_kept_sum(id)) inputs.erase(inputs.begin()), inputs[0] = node.outputs[0];
        return inputs;
    }

    // The forward nodes that have to be computed again, per node.
    std::vector<bool> nodes_to_recompute(const std::set<int>& blocks) const {
        std::vector<bool> again(graph_.nodes().size(), false);
        auto needs = [&](ValueId value) {
            if (is_dropped(value, blocks)) again[index(graph_.value(value).producer)] = true;
        };
        for (std::size_t i = graph_.nodes().size(); i-- > 0;) {
            const Node& node = graph_.nodes()[i];
            if (node.phase != Phase::forward) {
                for (ValueId input : node.inputs) needs(input);
            } else if (again[i]) {
                for (ValueId input : inputs_when_recomputed(static_cast<NodeId>(i))) needs(input);
            }
        }
        return again;
    }

    // Per storage: whether a later pass reads what the forward made of it, or the stage was given.
    std::vector<bool> kept(const std::set<int>& blocks) const {
        const std::vector<bool> again = nodes_to_recompute(blocks);
        std::vector<bool> kept(graph_.values().size(), false);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& node = graph_.nodes()[i];
            if (node.op->view || (node.phase == Phase::forward && !again[i])) continue;
            const std::vector<ValueId> inputs =
                node.phase == Phase::forward ? inputs_when_recomputed(static_cast<NodeId>(i)) : node.inputs;
            for (ValueId input : inputs)
                if (is_activation(root(input)) && !drops(root(input), blocks)) kept[root(input)] = true;
        }
        return kept;
    }

  private:
    static bool is_added_norm(const Node& node) { return !node.op->without_sum.empty(); }

    // Such as a bias, which only one of the ranks that share a matmul may add: no other would gather it again.
    bool is_gathered_vector(const Node& node) const {
        return gathers_parameter(graph_, node) && graph_.shape(node.inputs[0]).rank() <= 1;
    }

    void mark_constant(const Node& node) {
        const bool constant = !node.op->changes && !node.op->collective && !is_random(*node.op, node.attributes) &&
                              std::ranges::all_of(node.inputs, [&](ValueId v) { return constant_[index(v)]; });
        for (ValueId output : node.outputs) constant_[index(output)] = constant;
    }

    bool is_activation(std::size_t storage) const {
        const Value& value = graph_.values()[storage];
        if (value.producer == NodeId::none) return value.name.starts_with(sharding::stage_input);
        return !constant_[storage] && graph_.node(value.producer).phase == Phase::forward;
    }

    const Graph& graph_;
    std::vector<bool> constant_; // per value: made once, before the first step
    std::vector<bool> crosses_; // per storage: read by another block's forward, or returned: it is kept if it is needed
    std::vector<bool> of_sum_;  // per node
};

class Recomputing {
  public:
    Recomputing(const Graph& step, std::span<const int> blocks)
        : activations_(step), blocks_(blocks.begin(), blocks.end()), rewriter_(step),
          recomputed_(step.values().size(), ValueId::none) {}

    Graph run(schedule::Recompute when) {
        const auto nodes = activations_.graph().nodes();
        const std::vector<bool> needed = activations_.nodes_to_recompute(blocks_);
        bool early = when == schedule::Recompute::early;
        for (const Node& node : nodes) {
            if (node.phase != Phase::forward && early) {
                early = false;
                for (std::size_t i = 0; i < nodes.size(); ++i)
                    if (needed[i]) recompute_node(static_cast<NodeId>(i), Phase::recompute);
            }
            if (node.phase == Phase::forward) {
                rewriter_.enter(node);
                rewriter_.copy(node, rewriter_.renamed(node.inputs));
                continue;
            }
            std::vector<ValueId> inputs;
            for (ValueId input : node.inputs) inputs.push_back(available(input));
            rewriter_.enter(node);
            rewriter_.copy(node, std::move(inputs));
        }
        return eliminate_dead_code(rewriter_.finish());
    }

  private:
    // The value as a later pass has it. Within the backward it is computed here where it is not there yet.
    ValueId available(ValueId value) {
        if (!activations_.is_dropped(value, blocks_)) return rewriter_.renamed(value);
        if (recomputed_[index(value)] == ValueId::none)
            recompute_node(activations_.graph().value(value).producer, Phase::backward);
        return recomputed_[index(value)];
    }

    void recompute_node(NodeId id, Phase phase) {
        const Node& node = activations_.graph().node(id);
        std::vector<ValueId> inputs;
        for (ValueId input : activations_.inputs_when_recomputed(id)) inputs.push_back(available(input));
        Graph& graph = rewriter_.graph();
        graph.begin(phase);
        graph.set_block(node.block);
        const bool of_sum = activations_.is_of_kept_sum(id);
        const NodeId copy = graph.add_node(of_sum ? node.op->without_sum : node.op->name, std::move(inputs),
                                           node.attributes, node.source);
        const std::size_t first = of_sum ? 1 : 0; // the sum is no output of the norm
        for (std::size_t i = first; i < node.outputs.size(); ++i)
            recomputed_[index(node.outputs[i])] = graph.node(copy).outputs[i - first];
    }

    const Activations activations_;
    const std::set<int> blocks_;
    Rewriter rewriter_;
    std::vector<ValueId> recomputed_; // per forward value, its second self
};

} // namespace

Graph recompute(const Graph& step, std::span<const int> blocks, schedule::Recompute when) {
    if (blocks.empty() || when == schedule::Recompute::never) return step;
    return Recomputing(step, blocks).run(when);
}

std::vector<BlockActivations> measure_activations(const Graph& step) {
    const Activations activations(step);
    std::map<int, BlockActivations> found;
    for (const Node& node : step.nodes())
        if (node.phase == Phase::forward && node.block >= 0) found[node.block].block = node.block;
    if (found.empty()) return {};
    auto total = [&](const std::vector<bool>& kept) {
        Bytes bytes;
        for (std::size_t v = 0; v < kept.size(); ++v)
            if (kept[v]) bytes += step.values()[v].type.bytes();
        return bytes;
    };
    const std::vector<bool> all = activations.kept({});
    for (std::size_t v = 0; v < all.size(); ++v) {
        if (!all[v]) continue;
        const NodeId producer = step.values()[v].producer;
        const auto of = producer == NodeId::none ? found.begin() : found.find(step.node(producer).block);
        if (of != found.end()) of->second.kept += step.values()[v].type.bytes();
    }
    std::vector<BlockActivations> measured;
    for (auto& [number, block] : found) {
        const std::vector<bool> again = activations.nodes_to_recompute({number});
        for (std::size_t i = 0; i < again.size(); ++i)
            if (again[i]) block.recomputed += cost_of(step, i, i + 1).flops;
        block.boundary = block.kept - (total(all) - total(activations.kept({number})));
        measured.push_back(block);
    }
    return measured;
}

} // namespace tutti::compile

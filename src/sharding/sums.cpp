#include "graph/rewriter.h"
#include "sharding/shard.h"

namespace tutti::sharding {
namespace {

class Sums {
  public:
    explicit Sums(const Graph& graph) : graph_(graph), uses_(graph.values().size(), 0) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) ++uses_[index(input)];
        for (const Output& output : graph.outputs()) ++uses_[index(output.value)];
        inner_.resize(graph.nodes().size(), false);
        for (const Node& node : graph.nodes())
            if (is_sum(node))
                for (ValueId input : node.inputs)
                    if (continues(input)) inner_[index(graph.value(input).producer)] = true;
    }

    Graph run() const {
        Rewriter rewriter(graph_);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& node = graph_.nodes()[i];
            if (inner_[i]) continue; // added where the sum ends
            rewriter.enter(node);
            if (is_sum(node))
                add_up(rewriter, node);
            else
                rewriter.copy(node, rewriter.renamed(node.inputs));
        }
        return rewriter.finish();
    }

  private:
    // Of gradients; nothing is broadcast.
    bool is_sum(const Node& node) const {
        return node.phase == Phase::backward && node.op->arithmetic == Arithmetic::sum &&
               graph_.type(node.inputs[0]) == graph_.type(node.inputs[1]);
    }
    bool continues(ValueId value) const {
        const NodeId producer = graph_.value(value).producer;
        return producer != NodeId::none && uses_[index(value)] == 1 && is_sum(graph_.node(producer));
    }
    // Whether its node can add the rest of the sum to it.
    bool is_matmul(ValueId value) const {
        const NodeId producer = graph_.value(value).producer;
        return producer != NodeId::none && graph_.node(producer).op->addend >= 0;
    }

    void collect(const Node& node, std::vector<ValueId>& terms) const {
        for (ValueId input : node.inputs) {
            if (continues(input))
                collect(graph_.node(graph_.value(input).producer), terms);
            else
                terms.push_back(input);
        }
    }

    void add_up(Rewriter& rewriter, const Node& node) const {
        std::vector<ValueId> terms;
        collect(node, terms);
        std::ranges::stable_partition(terms, [&](ValueId term) { return is_matmul(term); });
        ValueId sum = rewriter.renamed(terms[0]);
        for (std::size_t i = 1; i < terms.size(); ++i)
            sum = rewriter.graph().add("add", {sum, rewriter.renamed(terms[i])}, node.attributes, node.source);
        rewriter.rename(node.outputs[0], sum);
    }

    const Graph& graph_;
    std::vector<int> uses_;
    std::vector<bool> inner_; // nodes that add up a part of a longer sum
};

} // namespace

Graph add_matmuls_first(const Graph& graph) { return Sums(graph).run(); }

} // namespace tutti::sharding

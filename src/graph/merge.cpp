#include "graph/merge.h"

#include "graph/rewriter.h"

#include <map>
#include <tuple>

namespace tutti {
namespace {

// Parts of a merged result begin at multiples of sixteen bytes, even in 16-bit types.
constexpr std::int64_t part_alignment = 8;

class Merging {
  public:
    explicit Merging(const Graph& graph)
        : graph_(graph), uses_(graph.values().size(), 0), parameters_(graph.stored().size(), 0) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) ++uses_[index(input)];
        for (const Output& output : graph.outputs()) ++uses_[index(output.value)], returned_.push_back(output.value);
        for (const Parameter& parameter : graph.parameters())
            for (std::int32_t stored : parameter.run()) ++parameters_[static_cast<std::size_t>(stored)];
    }

    Graph run(ValueId& followed) {
        find_groups();
        Rewriter rewriter(graph_, merged_);
        std::map<std::size_t, std::vector<ValueId>> packed; // weight and bias, per group
        for (std::size_t g = 0; g < groups_.size(); ++g)
            for (std::size_t input = 1; input < node(groups_[g][0]).inputs.size(); ++input)
                packed[g].push_back(pack(rewriter.graph(), groups_[g], input));
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            rewriter.enter(node(i));
            const auto found = group_of_.find(i);
            if (found == group_of_.end())
                rewriter.copy(node(i), rewriter.renamed(node(i).inputs));
            else if (groups_[found->second][0] == i)
                merge(rewriter, groups_[found->second], packed[found->second]);
        }
        if (followed != ValueId::none) followed = rewriter.renamed(followed);
        return rewriter.finish();
    }

  private:
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    void find_groups() {
        // By input, with bias or without; of one operator.
        std::map<std::tuple<ValueId, std::size_t, std::string_view, std::string>, std::vector<std::size_t>> together;
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (const Node& n = node(i); may_merge(n))
                together[{n.inputs[0], n.inputs.size(), n.op->name, to_string(n.attributes)}].push_back(i);
        for (const auto& [key, nodes] : together) {
            if (nodes.size() < 2) continue;
            for (std::size_t i : nodes) {
                group_of_[i] = groups_.size();
                merged_.insert(merged_.end(), node(i).inputs.begin() + 1, node(i).inputs.end());
            }
            groups_.push_back(nodes);
        }
    }

    bool may_merge(const Node& n) const {
        return n.op->product && std::ranges::find(returned_, n.outputs[0]) == returned_.end() &&
               graph_.shape(n.outputs[0]).back() % part_alignment == 0 &&
               std::ranges::all_of(n.inputs.begin() + 1, n.inputs.end(), [&](ValueId v) { return may_be_packed(v); });
    }

    // A whole stored tensor that is nothing but this one operand.
    bool may_be_packed(ValueId value) const {
        const Parameter* parameter = graph_.parameter_of(value);
        if (parameter == nullptr || !parameter->further.empty() || uses_[index(value)] != 1) return false;
        const auto stored = static_cast<std::size_t>(parameter->stored);
        const Shape& shape = graph_.shape(value);
        return parameters_[stored] == 1 && graph_.stored()[stored].type.shape == shape &&
               graph_.value(value).layout == dense_layout(shape) && shape.elements() % run_alignment == 0;
    }

    // One parameter of an operand of all nodes of a group.
    ValueId pack(Graph& to, const std::vector<std::size_t>& group, std::size_t input) const {
        std::vector<std::int32_t> run;
        Shape shape = graph_.shape(node(group[0]).inputs[input]);
        shape[0] = 0;
        for (std::size_t i : group) {
            const ValueId operand = node(i).inputs[input];
            run.push_back(graph_.parameter_of(operand)->stored);
            shape[0] += graph_.shape(operand)[0];
        }
        return to.add_parameter(run[0], shape, dense_layout(shape), {run.begin() + 1, run.end()});
    }

    void merge(Rewriter& rewriter, const std::vector<std::size_t>& group, const std::vector<ValueId>& packed) const {
        const Node& first = node(group[0]);
        std::vector<ValueId> inputs = {rewriter.renamed(first.inputs[0])}, outputs;
        inputs.insert(inputs.end(), packed.begin(), packed.end());
        std::vector<std::int64_t> sizes;
        for (std::size_t i : group) {
            outputs.push_back(node(i).outputs[0]);
            sizes.push_back(graph_.shape(outputs.back()).back());
        }
        const std::int64_t last = graph_.shape(outputs[0]).rank() - 1;
        const ValueId all = rewriter.graph().add(first.op->name, std::move(inputs), first.attributes, first.source);
        rewriter.add("split", {all}, {{"dim", last}, {"sizes", sizes}}, first.source, outputs);
    }

    const Graph& graph_;
    std::vector<int> uses_;
    std::vector<ValueId> returned_;
    std::vector<int> parameters_;                  // that each stored tensor is in
    std::vector<std::vector<std::size_t>> groups_; // of nodes, in order
    std::map<std::size_t, std::size_t> group_of_;  // of each node that is merged
    std::vector<ValueId> merged_;                  // parameters that become parts of others
};

} // namespace

Graph merge_linears(const Graph& graph, ValueId& followed) { return Merging(graph).run(followed); }

} // namespace tutti

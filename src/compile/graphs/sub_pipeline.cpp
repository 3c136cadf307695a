#include "compile/graphs/sub_pipeline.h"

#include "base/error.h"
#include "graph/verify.h"

#include <algorithm>
#include <array>
#include <map>

namespace tutti::compile {
namespace {

constexpr std::array halves = {0, 1};

class Halving {
  public:
    Halving(const Graph& half, std::int64_t samples, const std::set<std::string>& sampled)
        : half_(half), samples_(samples), sampled_names_(sampled), whole_(half.operators()),
          sampled_(half.values().size(), false) {
        for (auto& renamed : renamed_) renamed.assign(half.values().size(), ValueId::none);
        for (const StoredTensor& stored : half.stored()) whole_.add_stored(stored.name, stored.type);
        for (ValueId input : half.inputs()) {
            TensorType type = half.type(input);
            sampled_[index(input)] = begins_with_samples(half.value(input).name, type);
            if (sampled_[index(input)]) type.shape[0] *= 2;
            whole_inputs_[input] = whole_.add_input(half.value(input).name, type);
            if (!sampled_[index(input)]) set(input, whole_inputs_[input]);
        }
        for (const Parameter& parameter : half.parameters())
            set(parameter.value, whole_.add_parameter(parameter.stored, half.shape(parameter.value),
                                                      half.value(parameter.value).layout, parameter.further));
        for (const Node& node : half.nodes())
            for (ValueId output : node.outputs)
                sampled_[index(output)] =
                    std::ranges::any_of(node.inputs, [&](ValueId v) { return sampled_[index(v)]; });
    }

    Graph run() {
        for (const Phase phase : {Phase::forward, Phase::recompute, Phase::backward}) {
            interleave(phase);
            put_together(phase);
        }
        for (const Output& output : half_.outputs()) {
            if (output.parameter == ValueId::none) {
                whole_.add_output({output.name, joined_.at(output.value), ValueId::none});
                continue;
            }
            for (int h : halves)
                if (h == 0 || sampled_[index(output.value)])
                    whole_.add_output({output.name, value(h, output.value), value(h, output.parameter)});
        }
        verify(whole_);
        return std::move(whole_);
    }

  private:
    bool begins_with_samples(const std::string& name, const TensorType& type) const {
        if (!sampled_names_.empty()) return sampled_names_.contains(name);
        return !type.shape.empty() && type.shape[0] == samples_;
    }

    void set(ValueId old, ValueId both) {
        for (auto& renamed : renamed_) renamed[index(old)] = both;
    }

    // Of one half. Inputs are taken apart where they are first read.
    ValueId value(int h, ValueId old) {
        ValueId& now = renamed_[static_cast<std::size_t>(h)][index(old)];
        if (now == ValueId::none) {
            const std::int64_t size = half_.shape(old)[0];
            now = whole_.add("slice", {whole_inputs_.at(old)},
                             {{"dim", std::int64_t{0}}, {"start", h * size}, {"size", size}});
        }
        return now;
    }

    void interleave(Phase phase) {
        const auto nodes = half_.nodes();
        const auto end =
            static_cast<std::size_t>(std::ranges::upper_bound(nodes, phase, {}, &Node::phase) - nodes.begin());
        auto first = static_cast<std::size_t>(std::ranges::lower_bound(nodes, phase, {}, &Node::phase) - nodes.begin());
        while (first < end) {
            std::size_t last = first;
            while (last + 1 < end && !nodes[last].op->collective) ++last;
            for (int h : halves)
                for (std::size_t i = first; i <= last; ++i)
                    if (h == 0 || sampled_[index(nodes[i].outputs[0])]) copy(nodes[i], h);
            first = last + 1;
        }
    }

    void copy(const Node& node, int h) {
        whole_.begin(node.phase);
        whole_.set_block(node.block);
        std::vector<ValueId> inputs;
        for (ValueId input : node.inputs) inputs.push_back(value(h, input));
        Attributes attributes = node.attributes;
        if (h == 1 && is_random(*node.op, attributes))
            attributes.set("first_sample", attributes.integer("first_sample", 0) + samples_);
        const NodeId id = whole_.add_node(node.op->name, std::move(inputs), std::move(attributes), node.source);
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            const ValueId made = whole_.node(id).outputs[i];
            if (sampled_[index(node.outputs[i])])
                renamed_[static_cast<std::size_t>(h)][index(node.outputs[i])] = made;
            else
                set(node.outputs[i], made);
        }
    }

    // What the graph returns of a phase's results.
    void put_together(Phase phase) {
        for (const Output& output : half_.outputs()) {
            if (output.parameter != ValueId::none || joined_.contains(output.value)) continue;
            const NodeId producer = half_.value(output.value).producer;
            if (producer == NodeId::none) { // a value that passes through
                joined_[output.value] = whole_inputs_.at(output.value);
                continue;
            }
            const Node& node = half_.node(producer);
            if (node.phase != phase) continue;
            whole_.begin(phase);
            whole_.set_block(node.block);
            const ValueId a = value(0, output.value), b = value(1, output.value);
            if (a == b)
                joined_[output.value] = a;
            else if (begins_with_samples(output.name, half_.type(output.value)))
                joined_[output.value] = whole_.add("concat", {a, b}, {{"dim", std::int64_t{0}}}, node.source);
            else // sums over samples
                joined_[output.value] = whole_.add("add", {a, b}, {}, node.source);
        }
    }

    const Graph& half_;
    const std::int64_t samples_;
    const std::set<std::string>& sampled_names_;
    Graph whole_;
    std::vector<bool> sampled_;                   // per value: depends on samples
    std::array<std::vector<ValueId>, 2> renamed_; // per half and value
    std::map<ValueId, ValueId> whole_inputs_;
    std::map<ValueId, ValueId> joined_; // of outputs
};

} // namespace

Graph sub_pipelined(const Graph& step, std::int64_t samples, const std::set<std::string>& sampled) {
    TUTTI_CHECK(samples > 0, "half a micro-batch of {} samples", samples);
    return Halving(step, samples, sampled).run();
}

} // namespace tutti::compile

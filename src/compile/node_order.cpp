#include "compile/node_order.h"

#include "base/checked.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti::compile {
namespace {

// Small enough to keep for the whole run rather than to make again in every micro-batch.
constexpr std::int64_t constant_limit = std::int64_t{1} << 16;

class Ordering {
  public:
    Ordering(const Graph& graph, bool split_backward) : graph_(graph), split_backward_(split_backward) {}

    NodeOrder run() {
        count_uses();
        assign_parts();
        sort();
        find_readers();
        return std::move(result_);
    }

  private:
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    void count_uses() {
        result_.uses.assign(graph_.values().size(), 0);
        result_.contributions.assign(graph_.values().size(), 0);
        reader_.assign(graph_.values().size(), 0);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            for (ValueId input : node(i).inputs) {
                ++result_.uses[index(input)];
                reader_[index(input)] = i;
            }
        for (const Output& output : graph_.outputs())
            if (output.parameter != ValueId::none) ++result_.contributions[index(output.value)];
    }

    // A node is a weight gradient if all it does is to feed contributions, be it through a collective.
    bool only_contributes(std::size_t i) const {
        return std::ranges::all_of(node(i).outputs,
                                   [&](ValueId output) { return is_contribution(output) || is_only_reduced(output); });
    }
    bool is_contribution(ValueId value) const {
        return result_.contributions[index(value)] > 0 && result_.uses[index(value)] == 0;
    }
    bool is_only_reduced(ValueId value) const {
        if (result_.uses[index(value)] != 1 || result_.contributions[index(value)] > 0) return false;
        const Node& reader = node(reader_[index(value)]);
        return reader.op->collective && is_contribution(reader.outputs[0]);
    }

    void assign_parts() {
        std::vector<bool> constant(graph_.values().size(), false);
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            const Node& n = node(i);
            const bool hoisted =
                !n.op->changes && !is_random(*n.op, n.attributes) && !n.op->collective &&
                std::ranges::all_of(n.inputs, [&](ValueId v) { return constant[index(v)]; }) &&
                (!n.op->is_constant || graph_.type(n.outputs[0]).bytes().count <= constant_limit) &&
                std::ranges::none_of(n.outputs, [&](ValueId v) { return result_.contributions[index(v)] > 0; });
            for (ValueId output : n.outputs) constant[index(output)] = hoisted;
            result_.parts.push_back(hoisted ? Part::setup : part_of(i));
        }
    }
    Part part_of(std::size_t i) const {
        switch (node(i).phase) {
        case Phase::forward: return Part::forward;
        case Phase::backward: return split_backward_ && only_contributes(i) ? Part::weight_gradient : Part::backward;
        default: return Part::recompute;
        }
    }

    // Behind which node each comes, at least: itself, but for a gradient of parameters. That comes behind who carries
    // on from the same gradient by those parameters, however late (as part of a sum): so it may be written over them.
    std::vector<std::size_t> places() const {
        std::map<ValueId, std::vector<std::size_t>> readers; // of parameters, in backward
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (node(i).phase == Phase::backward && !node(i).op->view)
                for (ValueId input : node(i).inputs)
                    if (graph_.parameter_of(graph_.value(input).storage) != nullptr)
                        readers[graph_.value(input).storage].push_back(i);
        std::vector<std::size_t> result;
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) result.push_back(i);
        for (const Output& output : graph_.outputs()) {
            if (output.parameter == ValueId::none || !is_contribution(output.value)) continue;
            const auto mine = static_cast<std::size_t>(graph_.value(output.value).producer);
            if (!std::ranges::all_of(node(mine).outputs, [&](ValueId value) { return is_contribution(value); }))
                continue;
            for (std::size_t reader : readers[graph_.value(output.parameter).storage])
                if (share_input(node(mine), node(reader))) result[mine] = std::max(result[mine], reader);
        }
        return result;
    }
    static bool share_input(const Node& a, const Node& b) {
        return std::ranges::any_of(a.inputs,
                                   [&](ValueId input) { return std::ranges::find(b.inputs, input) != b.inputs.end(); });
    }

    void sort() {
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) result_.order.push_back(i);
        const std::vector<std::size_t> places = this->places();
        // A reader itself comes before those that were put there.
        std::ranges::stable_sort(
            result_.order, {}, [&](std::size_t i) { return std::tuple(result_.parts[i], places[i], places[i] != i); });
        result_.position.resize(graph_.nodes().size());
        for (std::size_t p = 0; p < result_.order.size(); ++p)
            result_.position[result_.order[p]] = narrow<std::int32_t>(p);
    }

    void find_readers() {
        const std::vector<std::int32_t>& position = result_.position;
        result_.last_reader.assign(graph_.values().size(), -1);
        auto reads = [&](std::size_t i, ValueId value) {
            std::int32_t& last = result_.last_reader[index(graph_.value(value).storage)];
            if (last < 0 || position[i] > position[static_cast<std::size_t>(last)]) last = narrow<std::int32_t>(i);
        };
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
            if (!node(i).op->view)
                for (ValueId input : node(i).inputs) reads(i, input);
        for (const Output& output : graph_.outputs())
            if (output.parameter != ValueId::none) reads(index(graph_.value(output.value).producer), output.value);
    }

    const Graph& graph_;
    bool split_backward_;
    std::vector<std::size_t> reader_; // per value: a node that reads it
    NodeOrder result_;
};

} // namespace

std::int32_t NodeOrder::end_of(Part part) const {
    for (std::size_t p = order.size(); p-- > 0;)
        if (parts[order[p]] == part) return narrow<std::int32_t>(p);
    return 0;
}

NodeOrder order_nodes(const Graph& graph, bool split_backward) { return Ordering(graph, split_backward).run(); }

} // namespace tutti::compile

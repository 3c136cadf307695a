#include "compile/graphs/overlap.h"

#include "graph/rewriter.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tutti::compile {
namespace {

class Overlap {
  public:
    explicit Overlap(const Graph& graph)
        : graph_(graph), readers_(graph.values().size()), returned_(graph.values().size(), false),
          contributes_(graph.values().size(), false), weight_gradient_(graph.nodes().size(), false) {
        for (std::size_t i = 0; i < graph.nodes().size(); ++i)
            for (ValueId input : node(i).inputs) readers_[index(input)].push_back(i);
        for (const Output& output : graph.outputs())
            (output.parameter == ValueId::none ? returned_ : contributes_)[index(output.value)] = true;
        for (std::size_t i = graph.nodes().size(); i-- > 0;) weight_gradient_[i] = is_weight_gradient(i);
    }

    Graph run() {
        std::vector<std::size_t> order = move_weight_gradients();
        put_readers_last(order);
        Rewriter rewriter(graph_);
        for (std::size_t i : order) {
            rewriter.enter(node(i));
            rewriter.copy(node(i), rewriter.renamed(node(i).inputs));
        }
        return rewriter.finish();
    }

  private:
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }

    // A node of the backward that feeds nothing but contributions, itself or through others that do the same.
    bool is_weight_gradient(std::size_t i) const {
        return node(i).phase == Phase::backward && !node(i).op->collective &&
               std::ranges::all_of(node(i).outputs, [&](ValueId output) {
                   const auto& readers = readers_[index(output)];
                   return !returned_[index(output)] && (contributes_[index(output)] || !readers.empty()) &&
                          std::ranges::all_of(readers, [&](std::size_t reader) { return weight_gradient_[reader]; });
               });
    }

    // The collective that takes up a value, as it is or after sums and changes of form.
    std::optional<std::size_t> collective_behind(ValueId value) const {
        for (;;) {
            std::optional<std::size_t> reader;
            for (std::size_t i : readers_[index(value)]) {
                if (weight_gradient_[i]) continue;
                if (reader) return std::nullopt;
                reader = i;
            }
            if (!reader || returned_[index(value)]) return std::nullopt;
            const Node& n = node(*reader);
            if (n.op->collective) return reader;
            const bool adds = n.op->arithmetic == Arithmetic::sum ||
                              (n.op->addend == static_cast<int>(n.inputs.size()) - 1 && n.inputs.back() == value);
            if (!adds && !n.op->view && !n.op->is_copy) return std::nullopt;
            value = n.outputs[0];
        }
    }

    // The collective behind the input gradient of the layer whose weight gradient this is: both read the gradient of
    // the layer's result.
    std::optional<std::size_t> collective_of_layer(std::size_t weight) const {
        for (ValueId input : node(weight).inputs)
            for (std::size_t i : readers_[index(input)]) {
                if (weight_gradient_[i] || node(i).phase != Phase::backward || node(i).source != node(weight).source)
                    continue;
                if (const auto found = collective_behind(node(i).outputs[0])) return found;
            }
        return std::nullopt;
    }

    std::vector<std::size_t> move_weight_gradients() const {
        std::vector<std::optional<std::size_t>> behind(graph_.nodes().size());
        for (std::size_t i = graph_.nodes().size(); i-- > 0;) {
            if (!weight_gradient_[i]) continue;
            std::optional<std::size_t> to = collective_of_layer(i);
            bool feeds = false;
            for (ValueId output : node(i).outputs)
                for (std::size_t reader : readers_[index(output)]) {
                    if (!feeds) to = behind[reader]; // where it is needed
                    feeds = true;
                    to = to && behind[reader] ? std::optional(std::min(*to, *behind[reader])) : std::nullopt;
                }
            if (to && *to > i) behind[i] = to;
        }
        std::map<std::size_t, std::vector<std::size_t>> moved; // by collective
        for (std::size_t i = 0; i < behind.size(); ++i)
            if (behind[i]) moved[*behind[i]].push_back(i);
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
            if (behind[i]) continue;
            order.push_back(i);
            if (const auto found = moved.find(i); found != moved.end())
                order.insert(order.end(), found->second.begin(), found->second.end());
        }
        return order;
    }

    // Between a collective and the next, or the end of its phase.
    void put_readers_last(std::vector<std::size_t>& order) const {
        constexpr std::size_t nothing = static_cast<std::size_t>(-1);
        std::vector<std::size_t> waits_for(graph_.values().size(), nothing); // the last collective it depends on
        for (auto at = order.begin(); at != order.end(); ++at) {
            const std::size_t collective = *at;
            if (!node(collective).op->collective) continue;
            for (ValueId output : node(collective).outputs) waits_for[index(output)] = collective;
            std::vector<std::size_t> independent, dependent;
            auto next = at + 1;
            for (; next != order.end() && !node(*next).op->collective; ++next) {
                const Node& n = node(*next);
                if (n.phase != node(collective).phase) break;
                const bool waits =
                    std::ranges::any_of(n.inputs, [&](ValueId v) { return waits_for[index(v)] == collective; });
                if (waits)
                    for (ValueId output : n.outputs) waits_for[index(output)] = collective;
                (waits ? dependent : independent).push_back(*next);
            }
            std::ranges::copy(dependent, std::ranges::copy(independent, at + 1).out);
        }
    }

    const Graph& graph_;
    std::vector<std::vector<std::size_t>> readers_; // per value
    std::vector<bool> returned_, contributes_;      // per value
    std::vector<bool> weight_gradient_;             // per node
};

} // namespace

Graph overlap_order(const Graph& step) { return Overlap(step).run(); }

} // namespace tutti::compile

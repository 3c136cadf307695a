#include "graph/fuse.h"

#include "graph/rewriter.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tutti {
namespace {

// One node in the place of several: its outputs become what theirs were.
struct Fused {
    std::string op;
    std::vector<ValueId> inputs;
    Attributes attributes;
    const Node& of;               // whose source and block it takes over
    std::vector<ValueId> outputs; // of the nodes that go
};

// Who reads what in a graph, and which nodes a pass has decided to replace.
class Fusion {
  public:
    explicit Fusion(const Graph& graph)
        : graph_(graph), readers_(graph.values().size()), returned_(graph.values().size(), 0),
          gone_(graph.nodes().size(), false) {
        for (std::size_t i = 0; i < graph.nodes().size(); ++i)
            for (ValueId input : graph.nodes()[i].inputs) readers_[index(input)].push_back(i);
        for (const Output& output : graph.outputs()) ++returned_[index(output.value)];
    }

    std::size_t count() const { return graph_.nodes().size(); }
    const Node& node(std::size_t i) const { return graph_.nodes()[i]; }
    const std::vector<std::size_t>& readers(ValueId value) const { return readers_[index(value)]; }
    bool is_returned(ValueId value) const { return returned_[index(value)] > 0; }

    bool is_gone(std::size_t i) const { return gone_[i]; }
    // A node of this operator that is still there.
    bool is(std::size_t i, std::string_view op) const { return !gone_[i] && node(i).op->name == op; }
    // The node that makes the value.
    std::optional<std::size_t> producer(ValueId value) const {
        const NodeId id = graph_.value(value).producer;
        return id == NodeId::none ? std::nullopt : std::optional(index(id));
    }
    // The only node that reads the value, where nothing else does, not even the graph's caller.
    std::optional<std::size_t> only_reader(ValueId value) const {
        if (readers(value).size() != 1 || is_returned(value)) return std::nullopt;
        return readers(value)[0];
    }
    // A reader of the value with this operator and these first inputs.
    std::optional<std::size_t> reader(ValueId value, std::string_view op, std::span<const ValueId> inputs) const {
        for (std::size_t i : readers(value))
            if (is(i, op) && node(i).inputs.size() >= inputs.size() &&
                std::ranges::equal(inputs, std::span(node(i).inputs).first(inputs.size())))
                return i;
        return std::nullopt;
    }
    bool defined_before(ValueId value, std::size_t i) const {
        const auto made = producer(value);
        return !made || *made < i;
    }
    // A sum or product of two operands that are not broadcast.
    bool is_plain(std::size_t i, Arithmetic arithmetic) const {
        return !gone_[i] && node(i).op->arithmetic == arithmetic &&
               graph_.type(node(i).inputs[0]) == graph_.type(node(i).outputs[0]) &&
               graph_.type(node(i).inputs[1]) == graph_.type(node(i).outputs[0]);
    }
    // Of such a node, the operand that is not this one; none where both are.
    std::optional<ValueId> other(std::size_t i, ValueId operand) const {
        const std::vector<ValueId>& in = node(i).inputs;
        if (in[0] == in[1]) return std::nullopt;
        return in[in[0] == operand ? 1 : 0];
    }

    // `fused` stands where node `at` stood; `nodes` go.
    void replace(std::size_t at, std::initializer_list<std::size_t> nodes, Fused fused) {
        for (std::size_t i : nodes) gone_[i] = true;
        fused_.emplace(at, std::move(fused));
    }
    void leave_out(ValueId output) { left_out_.push_back(output); }

    Graph apply() const {
        Rewriter rewriter(graph_);
        for (std::size_t i = 0; i < count(); ++i) {
            rewriter.enter(node(i));
            if (const auto found = fused_.find(i); found != fused_.end()) {
                const Fused& fused = found->second;
                rewriter.graph().set_block(fused.of.block);
                rewriter.add(fused.op, rewriter.renamed(fused.inputs), fused.attributes, fused.of.source,
                             fused.outputs);
            } else if (!gone_[i]) {
                rewriter.copy(node(i), rewriter.renamed(node(i).inputs));
            }
        }
        for (ValueId output : left_out_) rewriter.leave_out(output);
        return rewriter.finish();
    }

  private:
    const Graph& graph_;
    std::vector<std::vector<std::size_t>> readers_; // per value
    std::vector<int> returned_;
    std::vector<bool> gone_;
    std::map<std::size_t, Fused> fused_; // by the node whose place it takes
    std::vector<ValueId> left_out_;
};

std::vector<ValueId> joined(std::initializer_list<std::span<const ValueId>> lists) {
    std::vector<ValueId> all;
    for (std::span<const ValueId> list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

} // namespace

Graph fuse_added_norms(const Graph& graph) {
    Fusion fusion(graph);
    for (std::size_t n = 0; n < fusion.count(); ++n) {
        const Node& norm = fusion.node(n);
        const bool has_parameters = norm.inputs.size() > 1;
        if (norm.op->after_sum.empty() || !has_parameters || fusion.is_gone(n)) continue;
        const auto a = fusion.producer(norm.inputs[0]);
        if (!a || !fusion.is_plain(*a, Arithmetic::sum) || fusion.node(*a).phase != norm.phase) continue;
        const auto parameters = std::span(norm.inputs).subspan(1);
        if (!std::ranges::all_of(parameters, [&](ValueId v) { return fusion.defined_before(v, *a); })) continue;
        const Node& add = fusion.node(*a);
        fusion.replace(*a, {*a, n},
                       {std::string(norm.op->after_sum), joined({add.inputs, parameters}), norm.attributes, norm,
                        joined({add.outputs, norm.outputs})});
    }
    return fusion.apply();
}

// Autodiff emits for y = act(gate) up, with d the gradient of y:
//   dact = multiply(d, up), dup = multiply(d, act(gate)), dgate = act_gradient(dact, gate)
Graph fuse_gated(const Graph& graph) {
    Fusion fusion(graph);
    for (std::size_t a = 0; a < fusion.count(); ++a) {
        const Node& act = fusion.node(a);
        if (!act.op->gate || act.phase != Phase::forward || fusion.is_returned(act.outputs[0])) continue;
        const ValueId gate = act.inputs[0], activated = act.outputs[0];
        const auto& readers = fusion.readers(activated);
        if (readers.size() != 2) continue;
        const std::size_t y = readers[0], up_gradient = readers[1]; // forward first
        if (!fusion.is_plain(y, Arithmetic::product) || !fusion.is_plain(up_gradient, Arithmetic::product) ||
            fusion.node(y).phase != Phase::forward || fusion.node(up_gradient).phase != Phase::backward)
            continue;
        const auto up = fusion.other(y, activated), d = fusion.other(up_gradient, activated);
        if (!up || !d) continue;
        for (std::size_t product : fusion.readers(*d)) {
            if (product == up_gradient || !fusion.is_plain(product, Arithmetic::product)) continue;
            if (fusion.other(product, *d) != up) continue;
            const ValueId act_gradient = fusion.node(product).outputs[0];
            const auto last = fusion.only_reader(act_gradient);
            if (!last || fusion.is_gone(*last) || fusion.node(*last).op->gradient_of != act.op->name ||
                fusion.node(*last).inputs != std::vector{act_gradient, gate})
                continue;
            const Attributes attributes = {{"activation", act.op->gate(act.attributes)}};
            const Node& forward = fusion.node(y);
            fusion.replace(y, {a, y}, Fused{"gated", {gate, *up}, attributes, forward, forward.outputs});
            fusion.replace(std::min(product, up_gradient), {product, up_gradient, *last},
                           Fused{"gated_gradient",
                                 {*d, gate, *up},
                                 attributes,
                                 forward,
                                 {fusion.node(*last).outputs[0], fusion.node(up_gradient).outputs[0]}});
            break;
        }
    }
    return fusion.apply();
}

Graph fuse_norm_gradients(const Graph& graph) {
    Fusion fusion(graph);
    for (std::size_t i = 0; i < fusion.count(); ++i) {
        const Node& input = fusion.node(i);
        const auto& norm = input.op->norm_gradient;
        if (!norm || input.inputs.size() != norm->scale + 1 || fusion.is_gone(i)) continue;
        const auto rows = std::span(input.inputs).first(input.inputs.size() - 1); // all but the scale
        const auto w = fusion.reader(rows[0], norm->weight_gradient, rows);
        if (!w) continue;
        const Node& weight = fusion.node(*w);
        if (!std::ranges::all_of(weight.outputs, [&](ValueId v) { return fusion.readers(v).empty(); })) continue;
        Fused fused{std::string(norm->both_gradients), input.inputs, input.attributes, input,
                    joined({input.outputs, weight.outputs})};
        const auto sum = fusion.only_reader(input.outputs[0]);
        const auto residual =
            sum && fusion.is_plain(*sum, Arithmetic::sum) ? fusion.other(*sum, input.outputs[0]) : std::nullopt;
        if (residual) {
            fused.inputs.push_back(*residual);
            fused.outputs[0] = fusion.node(*sum).outputs[0];
            fusion.replace(*sum, {i, *w, *sum}, std::move(fused)); // there the residual is defined
        } else {
            fusion.replace(i, {i, *w}, std::move(fused));
        }
    }
    return fusion.apply();
}

Graph fuse_matmul_sums(const Graph& graph) {
    Fusion fusion(graph);
    for (std::size_t s = 0; s < fusion.count(); ++s) {
        if (!fusion.is_plain(s, Arithmetic::sum) || fusion.node(s).phase != Phase::backward) continue;
        const Node& sum = fusion.node(s);
        for (ValueId operand : {sum.inputs[1], sum.inputs[0]}) { // the later one, where both are matmuls
            const auto p = fusion.producer(operand);
            const auto other = fusion.other(s, operand);
            if (!p || !other || fusion.is_gone(*p) || fusion.only_reader(operand) != s) continue;
            const Node& product = fusion.node(*p);
            if (product.op->addend != static_cast<int>(product.inputs.size())) continue;
            fusion.replace(s, {*p, s},
                           {std::string(product.op->name), joined({product.inputs, std::span(&*other, 1)}),
                            product.attributes, product, sum.outputs});
            break;
        }
    }
    return fusion.apply();
}

namespace {

// Rows at a time that keep the logits within a limit, in parts of about one size.
std::int64_t rows_at_a_time(std::int64_t rows, Bytes row, Bytes limit) {
    constexpr std::int64_t granule = 64;
    const std::int64_t most = std::max(granule, limit.count / std::max<std::int64_t>(row.count, 1) / granule * granule);
    const std::int64_t parts = (rows + most - 1) / most, each = (rows + parts - 1) / parts;
    return parts == 1 ? rows : (each + granule - 1) / granule * granule;
}

} // namespace

Graph fuse_head(const Graph& graph, Bytes limit) {
    Fusion fusion(graph);
    for (std::size_t l = 0; l < fusion.count(); ++l) {
        const Node& loss = fusion.node(l);
        if (!loss.op->loss || fusion.is_gone(l)) continue;
        const ValueId logits = loss.inputs[0], targets = loss.inputs[1], lse = loss.outputs[1];
        const auto h = fusion.producer(logits);
        const auto g = fusion.only_reader(lse);
        if (!h || !g || fusion.is_gone(*h) || fusion.is_gone(*g)) continue;
        const Node &head = fusion.node(*h), &gradient = fusion.node(*g);
        const std::optional<WeightProduct>& product = head.op->product;
        if (!product || product->with_loss.empty() || product->with_loss != loss.op->loss->with_product ||
            gradient.op->gradient_of != loss.op->name)
            continue;
        if (!std::ranges::equal(std::span(gradient.inputs).subspan(1), std::vector{logits, targets, lse}) ||
            gradient.attributes != loss.attributes || fusion.readers(logits) != std::vector{l, *g} ||
            !fusion.readers(loss.outputs[0]).empty() || fusion.is_returned(gradient.outputs[0]))
            continue;
        const ValueId dlogits = gradient.outputs[0], x = head.inputs[0], weight = head.inputs[1];
        const bool has_bias = head.inputs.size() == 3;
        const auto dx = fusion.reader(dlogits, product->input_gradient, std::vector{dlogits, weight});
        const auto dweight = fusion.reader(dlogits, product->weight_gradient, std::vector{dlogits, x});
        const auto dbias = fusion.reader(dlogits, product->bias_gradient, std::vector{dlogits});
        if (!dx || !dweight || dbias.has_value() != has_bias || fusion.node(*dx).inputs.size() != 2 ||
            fusion.readers(dlogits).size() != (has_bias ? 3u : 2u))
            continue;
        const Bytes row{graph.shape(weight)[0] * size_of(graph.type(x).dtype)};
        Fused fused{std::string(product->with_loss),
                    {gradient.inputs[0], x, weight, targets},
                    loss.attributes,
                    head,
                    {loss.outputs[0], fusion.node(*dx).outputs[0], fusion.node(*dweight).outputs[0]}};
        fused.attributes.set("rows", rows_at_a_time(graph.type(targets).elements(), row, limit));
        if (has_bias) {
            fused.inputs.push_back(head.inputs[2]);
            fused.outputs.push_back(fusion.node(*dbias).outputs[0]);
        }
        fusion.replace(*g, {*h, l, *g, *dx, *dweight, dbias.value_or(*g)}, std::move(fused));
        fusion.leave_out(logits);
    }
    return fusion.apply();
}

Graph fuse(Graph graph, const FusionOptions& options) {
    if (options.head) graph = fuse_head(graph, options.head_logits);
    if (options.elementwise) graph = fuse_gated(fuse_added_norms(graph));
    if (options.norm_weights) graph = fuse_norm_gradients(graph);
    if (options.elementwise) graph = fuse_matmul_sums(graph);
    return graph;
}

} // namespace tutti

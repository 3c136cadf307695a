#include "graph/text.h"

#include "base/checked.h"
#include "base/error.h"
#include "graph/verify.h"

#include <charconv>
#include <limits>

namespace tutti {
namespace {

std::string quote(const std::string& text) { return to_string(Attribute(text)); }
std::string typed(const Graph& graph, ValueId value) {
    return fmt::format("%{}: {}", index(value), to_string(graph.type(value)));
}

std::string node_line(const Graph& graph, const Node& node) {
    std::string outputs, inputs, attributes;
    for (ValueId output : node.outputs) outputs += (outputs.empty() ? "" : ", ") + typed(graph, output);
    for (ValueId input : node.inputs) inputs += fmt::format("{}%{}", inputs.empty() ? "" : ", ", index(input));
    for (const auto& [name, value] : node.attributes.entries())
        attributes += fmt::format("{}{}={}", attributes.empty() ? "" : ", ", name, to_string(value));
    return fmt::format(
        "{} = {}({}){}{}{}\n", outputs, node.op->name, inputs, attributes.empty() ? "" : " {" + attributes + "}",
        node.source.empty() ? "" : " @" + quote(node.source), node.block < 0 ? "" : fmt::format(" #{}", node.block));
}

// Reads one line, token by token. Every failure names the line.
class Line {
  public:
    Line(std::string_view text, std::size_t number) : rest_(text), number_(number) {}

    [[noreturn]] void bad(std::string_view what) const {
        fail("line {} of the graph: expected {} at \"{}\"", number_, what, rest_.substr(0, 40));
    }
    bool at_end() {
        skip();
        return rest_.empty();
    }
    bool accept(std::string_view token) {
        skip();
        if (!rest_.starts_with(token)) return false;
        rest_.remove_prefix(token.size());
        return true;
    }
    void expect(std::string_view token) {
        if (!accept(token)) bad(fmt::format("\"{}\"", token));
    }
    std::string_view word() {
        skip();
        std::size_t n = 0;
        while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
        if (n == 0) bad("a name");
        return take(n);
    }
    std::string quoted() {
        expect("\"");
        std::string text;
        while (!rest_.empty() && rest_[0] != '"') {
            if (rest_[0] == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
            text += rest_[0];
            rest_.remove_prefix(1);
        }
        expect("\"");
        return text;
    }
    std::int64_t integer() {
        skip();
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (error != std::errc()) bad("an integer");
        take(static_cast<std::size_t>(end - rest_.data()));
        return value;
    }
    double real() {
        skip();
        double value = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (error != std::errc()) bad("a number");
        take(static_cast<std::size_t>(end - rest_.data()));
        return value;
    }
    std::vector<std::int64_t> integers() {
        std::vector<std::int64_t> values;
        expect("[");
        if (accept("]")) return values;
        do values.push_back(integer());
        while (accept(","));
        expect("]");
        return values;
    }
    Shape shape() {
        const std::vector<std::int64_t> sizes = integers();
        if (sizes.size() > Shape::max_rank) bad("at most 8 dimensions");
        return Shape(std::span(sizes));
    }
    TensorType type() {
        const auto dtype = parse_dtype(word());
        if (!dtype) bad("an element type before this");
        const TensorType type{*dtype, shape()};
        std::int64_t elements = 1;
        for (std::int64_t size : type.shape) {
            const auto product = checked_multiply(elements, size);
            if (size <= 0 || !product || *product > std::int64_t{1} << 48)
                bad("positive sizes of at most 2^48 elements before this");
            elements = *product;
        }
        return type;
    }
    std::size_t value_number() {
        expect("%");
        const std::int64_t number = integer();
        if (number < 0) bad("a value number");
        return static_cast<std::size_t>(number);
    }
    std::int32_t block_number() {
        const std::int64_t number = integer();
        if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) bad("a block number before this");
        return static_cast<std::int32_t>(number);
    }
    Attribute attribute() {
        skip();
        if (accept("true")) return true;
        if (accept("false")) return false;
        if (rest_.starts_with('"')) return quoted();
        if (rest_.starts_with('[')) return integers();
        if (accept("r[")) return reals();
        const std::size_t end = rest_.find_first_of(",}");
        if (rest_.substr(0, end).find_first_of(".en") != std::string_view::npos) return real();
        return integer();
    }

  private:
    void skip() {
        while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
    }
    std::string_view take(std::size_t n) {
        const std::string_view taken = rest_.substr(0, n);
        rest_.remove_prefix(n);
        return taken;
    }
    std::vector<double> reals() {
        std::vector<double> values;
        if (accept("]")) return values;
        do values.push_back(real());
        while (accept(","));
        expect("]");
        return values;
    }

    std::string_view rest_;
    std::size_t number_;
};

class Reader {
  public:
    explicit Reader(const OperatorSet& operators) : graph_(operators) {}

    void read(Line line) {
        if (line.accept("stored ")) return stored(line);
        if (line.accept("input ")) return input(line);
        if (line.accept("parameter ")) return parameter(line);
        if (line.accept("output ")) return output(line);
        if (line.accept("gradient ")) return gradient(line);
        if (line.accept("recompute")) return graph_.begin(Phase::recompute);
        if (line.accept("backward")) return graph_.begin(Phase::backward);
        node(line);
    }
    Graph finish() { return std::move(graph_); }

  private:
    ValueId known(Line& line) {
        const std::size_t number = line.value_number();
        if (number >= graph_.values().size()) line.bad("a value that is defined, before this");
        return static_cast<ValueId>(number);
    }
    void expect_number(Line& line, ValueId value, std::size_t number) const {
        if (index(value) != number) line.bad(fmt::format("values numbered in order (this is %{})", index(value)));
    }
    void stored(Line& line) {
        if (line.integer() != static_cast<std::int64_t>(graph_.stored().size())) line.bad("stored tensors in order");
        std::string name = line.quoted();
        line.expect(":");
        graph_.add_stored(std::move(name), line.type());
    }
    void input(Line& line) {
        const std::size_t number = line.value_number();
        std::string name = line.quoted();
        line.expect(":");
        expect_number(line, graph_.add_input(std::move(name), line.type()), number);
    }
    void parameter(Line& line) {
        const std::size_t number = line.value_number();
        line.expect(":");
        const TensorType type = line.type();
        line.expect("= stored ");
        std::vector<std::int32_t> run;
        do {
            const std::int64_t stored = line.integer();
            if (stored < 0 || stored >= static_cast<std::int64_t>(graph_.stored().size())) line.bad("a stored tensor");
            run.push_back(static_cast<std::int32_t>(stored));
            if (graph_.stored()[static_cast<std::size_t>(stored)].type.dtype != type.dtype)
                line.bad("the stored element type");
        } while (line.accept(","));
        line.expect("strides");
        const Shape strides = line.shape();
        line.expect("offset");
        const std::int64_t offset = line.integer();
        if (strides.rank() != type.shape.rank()) line.bad("a stride for each dimension");
        expect_number(line, graph_.add_parameter(run[0], type.shape, {strides, offset}, {run.begin() + 1, run.end()}),
                      number);
    }
    void output(Line& line) {
        std::string name = line.quoted();
        line.expect("=");
        graph_.add_output({std::move(name), known(line), ValueId::none});
    }
    void gradient(Line& line) {
        std::string name = line.quoted();
        line.expect("of");
        const ValueId parameter = known(line);
        line.expect("=");
        graph_.add_output({std::move(name), known(line), parameter});
    }
    void node(Line& line) {
        std::vector<std::pair<std::size_t, TensorType>> outputs;
        do {
            const std::size_t number = line.value_number();
            line.expect(":");
            outputs.emplace_back(number, line.type());
        } while (line.accept(","));
        line.expect("=");
        const std::string op(line.word());
        if (graph_.operators().find(op) == nullptr) line.bad(fmt::format("a known operator (not {})", op));
        std::vector<ValueId> inputs;
        line.expect("(");
        if (!line.accept(")")) {
            do inputs.push_back(known(line));
            while (line.accept(","));
            line.expect(")");
        }
        Attributes attributes;
        if (line.accept("{")) {
            do {
                const std::string name(line.word());
                line.expect("=");
                attributes.set(name, line.attribute());
            } while (line.accept(","));
            line.expect("}");
        }
        std::string source;
        if (line.accept("@")) source = line.quoted();
        graph_.set_block(line.accept("#") ? line.block_number() : -1);
        if (!line.at_end()) line.bad("the end of the line");
        if (graph_.operators().at(op).view && inputs.empty()) line.bad("an input to look at");
        try {
            const NodeId id = graph_.add_node(op, std::move(inputs), std::move(attributes), std::move(source));
            const Node& made = graph_.node(id);
            if (made.outputs.size() != outputs.size()) line.bad(fmt::format("{} outputs", made.outputs.size()));
            for (std::size_t i = 0; i < outputs.size(); ++i) {
                expect_number(line, made.outputs[i], outputs[i].first);
                if (graph_.type(made.outputs[i]) != outputs[i].second)
                    line.bad(fmt::format("the type {}", to_string(graph_.type(made.outputs[i]))));
            }
        } catch (const Bug& bug) { // an attribute that the operator needs is absent or of another kind
            line.bad(fmt::format("attributes that {} takes ({})", op, bug.what()));
        }
    }

    Graph graph_;
};

} // namespace

std::string to_text(const Graph& graph) {
    std::string text;
    for (std::size_t i = 0; i < graph.stored().size(); ++i)
        text += fmt::format("stored {} {}: {}\n", i, quote(graph.stored()[i].name), to_string(graph.stored()[i].type));
    Phase phase = Phase::forward;
    for (std::size_t i = 0; i < graph.values().size(); ++i) {
        const auto id = static_cast<ValueId>(i);
        const Value& value = graph.value(id);
        if (value.producer != NodeId::none) {
            const Node& node = graph.node(value.producer);
            if (node.outputs.front() != id) continue;
            if (node.phase != phase) text += node.phase == Phase::recompute ? "recompute\n" : "backward\n";
            phase = node.phase;
            text += node_line(graph, node);
        } else if (const Parameter* parameter = graph.parameter_of(id)) {
            text +=
                fmt::format("parameter {} = stored {} strides {} offset {}\n", typed(graph, id),
                            fmt::join(parameter->run(), ", "), to_string(value.layout.strides), value.layout.offset);
        } else {
            text += fmt::format("input %{} {}: {}\n", i, quote(value.name), to_string(value.type));
        }
    }
    for (const Output& output : graph.outputs()) {
        if (output.parameter == ValueId::none)
            text += fmt::format("output {} = %{}\n", quote(output.name), index(output.value));
        else
            text += fmt::format("gradient {} of %{} = %{}\n", quote(output.name), index(output.parameter),
                                index(output.value));
    }
    return text;
}

Graph parse_graph(std::string_view text, const OperatorSet& operators) {
    Reader reader(operators);
    std::size_t number = 1;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (end > 0) reader.read(Line(text.substr(0, end), number));
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
    }
    Graph graph = reader.finish();
    verify(graph);
    return graph;
}

} // namespace tutti

#include "graph/loops.h"

#include "base/error.h"

#include <algorithm>
#include <cctype>

namespace tutti {
namespace {

class Parser {
  public:
    Parser(const Operator& op, std::string text, LoopDims& out) : op_(op), text_(std::move(text)), out_(out) {}

    void run(Types inputs, Types outputs) {
        operands(inputs, out_.inputs);
        accept("->");
        operands(outputs, out_.outputs);
        skip_spaces();
        TUTTI_CHECK(at_ == text_.size(), "{}: loops \"{}\" end early", op_.name, text_);
        while (infer_factor_sizes(inputs, out_.inputs) || infer_factor_sizes(outputs, out_.outputs)) {
        } // until no operand tells more: "(a b) (c d) -> a (b c) d" takes two rounds
        check_sizes(inputs, out_.inputs);
        check_sizes(outputs, out_.outputs);
    }

  private:
    void skip_spaces() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    }
    bool peek(std::string_view token) {
        skip_spaces();
        return text_.compare(at_, token.size(), token) == 0;
    }
    bool accept(std::string_view token) {
        if (!peek(token)) return false;
        at_ += token.size();
        return true;
    }

    void operands(Types types, std::vector<std::vector<LoopDims::Dimension>>& result) {
        for (std::size_t i = 0; i < types.size(); ++i) {
            if (i > 0) TUTTI_CHECK(accept(","), "{}: loops \"{}\" name too few operands", op_.name, text_);
            result.push_back(operand(types[i]));
        }
    }

    // Called for every node many times while a graph is sharded, so words are not copied.
    std::vector<LoopDims::Dimension> operand(const TensorType& type) {
        factors_.clear();
        int dims = 0, star = -1;
        while (skip_spaces(), at_ < text_.size() && !peek(",") && !peek("->")) {
            if (accept("(")) {
                while (!accept(")")) factors_.push_back({word(), dims});
            } else {
                factors_.push_back({word(), dims});
                if (factors_.back().word.back() == '*') star = dims;
            }
            ++dims;
        }
        // r* becomes r0 r1 ..., as many as the operand's rank leaves room for.
        const int more = star >= 0 ? type.shape.rank() - dims : 0;
        TUTTI_CHECK(dims + more == type.shape.rank(), "{}: loops \"{}\" for {}", op_.name, text_, to_string(type));
        std::vector<LoopDims::Dimension> result(static_cast<std::size_t>(std::max(0, dims + more)));
        for (const Factor& factor : factors_) {
            if (factor.dim == star) {
                const std::string stem(factor.word.substr(0, factor.word.size() - 1));
                for (int i = 0; i <= more; ++i)
                    result[static_cast<std::size_t>(star + i)].push_back(loop(stem + std::to_string(i)));
            } else if (factor.word != "1") {
                const int dim = factor.dim + (star >= 0 && factor.dim > star ? more : 0);
                result[static_cast<std::size_t>(dim)].push_back(loop(factor.word));
            }
        }
        return result;
    }

    std::string_view word() {
        skip_spaces();
        const std::size_t start = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
                                      text_[at_] == '!' || text_[at_] == '*' || text_[at_] == '^'))
            ++at_;
        TUTTI_CHECK(at_ > start, "{}: loops \"{}\" at {}", op_.name, text_, start);
        return std::string_view(text_).substr(start, at_ - start);
    }

    int loop(std::string_view name) {
        bool whole = false;
        Combine combine = Combine::sum;
        while (name.back() == '!' || name.back() == '^') {
            if (name.back() == '!') whole = true;
            if (name.back() == '^') combine = Combine::maximum;
            name.remove_suffix(1);
        }
        auto found = std::ranges::find(out_.loops, name, &Loop::name);
        if (found == out_.loops.end()) {
            out_.loops.push_back({std::string(name), 0, false, Combine::sum});
            found = out_.loops.end() - 1;
        }
        found->whole |= whole;
        if (combine == Combine::maximum) found->combine = combine;
        return static_cast<int>(found - out_.loops.begin());
    }

    // A dimension of one loop gives that loop its size; a product with one unknown gives the rest.
    // Says whether it found any.
    bool infer_factor_sizes(Types types, const std::vector<std::vector<LoopDims::Dimension>>& operands) {
        bool found = false;
        for (std::size_t i = 0; i < types.size(); ++i)
            for (std::size_t d = 0; d < operands[i].size(); ++d) {
                std::int64_t known = 1;
                int unknown = -1, unknowns = 0;
                for (int factor : operands[i][d]) {
                    const std::int64_t size = out_.loops[static_cast<std::size_t>(factor)].size;
                    if (size == 0) unknown = factor, ++unknowns;
                    known *= std::max<std::int64_t>(size, 1);
                }
                if (unknowns != 1) continue;
                std::int64_t& size = out_.loops[static_cast<std::size_t>(unknown)].size;
                size = types[i].shape[static_cast<int>(d)] / known;
                found |= size > 0;
            }
        return found;
    }

    void check_sizes(Types types, const std::vector<std::vector<LoopDims::Dimension>>& operands) const {
        for (std::size_t i = 0; i < types.size(); ++i)
            for (std::size_t d = 0; d < operands[i].size(); ++d) {
                std::int64_t product = 1;
                for (int factor : operands[i][d]) product *= out_.loops[static_cast<std::size_t>(factor)].size;
                TUTTI_CHECK(operands[i][d].empty() || product == types[i].shape[static_cast<int>(d)],
                            "{}: loops \"{}\" give {} for dimension {} of {}", op_.name, text_, product, d,
                            to_string(types[i]));
            }
    }

    struct Factor { // of a dimension of the operand at hand
        std::string_view word;
        int dim = 0;
    };

    const Operator& op_;
    std::string text_;
    LoopDims& out_;
    std::size_t at_ = 0;
    std::vector<Factor> factors_{};
};

} // namespace

int LoopDims::dimension_of(const std::vector<Dimension>& operand, int loop) {
    for (std::size_t d = 0; d < operand.size(); ++d)
        if (std::ranges::find(operand[d], loop) != operand[d].end()) return static_cast<int>(d);
    return -1;
}

LoopDims resolve_loops(const Operator& op, Types inputs, Types outputs, const Attributes& attributes) {
    LoopDims dims;
    Parser(op, op.loops(inputs, attributes), dims).run(inputs, outputs);
    return dims;
}

LoopDims loops_of(const Graph& graph, const Node& node) {
    return resolve_loops(*node.op, graph.input_types(node), graph.output_types(node), node.attributes);
}

} // namespace tutti

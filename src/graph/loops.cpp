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

    std::vector<LoopDims::Dimension> operand(const TensorType& type) {
        std::vector<std::vector<std::string>> dims;
        int star = -1;
        while (skip_spaces(), at_ < text_.size() && !peek(",") && !peek("->")) {
            std::vector<std::string> factors;
            if (accept("(")) {
                while (!accept(")")) factors.push_back(word());
            } else {
                factors.push_back(word());
            }
            if (factors.size() == 1 && factors[0].back() == '*') star = static_cast<int>(dims.size());
            dims.push_back(std::move(factors));
        }
        if (star >= 0) expand_star(dims, static_cast<std::size_t>(star), type.shape.rank());
        TUTTI_CHECK(static_cast<int>(dims.size()) == type.shape.rank(), "{}: loops \"{}\" for {}", op_.name, text_,
                    to_string(type));
        std::vector<LoopDims::Dimension> result;
        for (const std::vector<std::string>& factors : dims) {
            LoopDims::Dimension dimension;
            for (const std::string& factor : factors)
                if (factor != "1") dimension.push_back(loop(factor));
            result.push_back(std::move(dimension));
        }
        return result;
    }

    // r* becomes r0 r1 ..., as many as the operand's rank leaves room for.
    static void expand_star(std::vector<std::vector<std::string>>& dims, std::size_t star, int rank) {
        std::string stem = dims[star][0];
        stem.pop_back();
        const int count = rank - static_cast<int>(dims.size()) + 1;
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(star));
        for (int i = count - 1; i >= 0; --i)
            dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(star), {stem + std::to_string(i)});
    }

    std::string word() {
        skip_spaces();
        const std::size_t start = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
                                      text_[at_] == '!' || text_[at_] == '*' || text_[at_] == '^'))
            ++at_;
        TUTTI_CHECK(at_ > start, "{}: loops \"{}\" at {}", op_.name, text_, start);
        return text_.substr(start, at_ - start);
    }

    int loop(std::string name) {
        bool whole = false;
        Combine combine = Combine::sum;
        while (name.back() == '!' || name.back() == '^') {
            if (name.back() == '!') whole = true;
            if (name.back() == '^') combine = Combine::maximum;
            name.pop_back();
        }
        auto found = std::ranges::find(out_.loops, name, &Loop::name);
        if (found == out_.loops.end()) {
            out_.loops.push_back({name, 0, false, Combine::sum});
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

    const Operator& op_;
    std::string text_;
    LoopDims& out_;
    std::size_t at_ = 0;
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

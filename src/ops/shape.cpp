// Operators that move or rename elements. All but contiguous are views: no kernel runs.
#include "graph/loops.h"
#include "ops/families.h"

#include <numeric>

namespace tutti::ops {
namespace {

// Groups of dimensions whose products agree, as in [6,4] -> [2,3,4]: {0} {0,1}, {1} {2}.
struct Group {
    int from_begin, from_end, to_begin, to_end;
};
std::vector<Group> match_dimensions(const Shape& from, const Shape& to) {
    std::vector<Group> groups;
    int i = 0, j = 0;
    while (i < from.rank() || j < to.rank()) {
        Group group{i, i, j, j};
        std::int64_t a = 1, b = 1;
        do {
            if ((a <= b && i < from.rank()) || j == to.rank())
                a *= from[i++];
            else
                b *= to[j++];
        } while (a != b);
        // Trailing ones belong to the last group.
        group.from_end = i;
        group.to_end = j;
        groups.push_back(group);
    }
    return groups;
}

// Within a group each side is the product of the common refinement: sizes that split both sides. Where no refinement
// exists (6 x 4 against 8 x 3) the group stays whole: one loop that may not be split on either side beyond its slowest.
std::string reshape_loops(const Shape& from, const Shape& to) {
    std::string left, right;
    int loop = 0;
    for (const Group& group : match_dimensions(from, to)) {
        int i = group.from_begin, j = group.to_begin;
        std::int64_t a = i < group.from_end ? from[i] : 1, b = j < group.to_end ? to[j] : 1;
        std::string left_dim, right_dim;
        bool refinable = true;
        std::vector<std::string> left_dims, right_dims;
        while (i < group.from_end || j < group.to_end) {
            const std::int64_t common = std::gcd(a, b);
            if ((a == common || b == common) && !(a == 1 || b == 1)) {
                const std::string name = fmt::format("l{}", loop++);
                left_dim += ' ' + name;
                right_dim += ' ' + name;
                a /= common;
                b /= common;
            } else if (a != 1 && b != 1) {
                refinable = false;
                break;
            }
            if (a == 1 && i < group.from_end) {
                left_dims.push_back(left_dim);
                left_dim.clear();
                a = ++i < group.from_end ? from[i] : 1;
            }
            if (b == 1 && j < group.to_end) {
                right_dims.push_back(right_dim);
                right_dim.clear();
                b = ++j < group.to_end ? to[j] : 1;
            }
        }
        auto join = [](const std::vector<std::string>& dims) {
            std::string text;
            for (const std::string& dim : dims) {
                if (dim.empty())
                    text += " 1";
                else
                    text += dim.find(' ', 1) == std::string::npos ? dim : " (" + dim.substr(1) + ")";
            }
            return text;
        };
        if (!refinable) { // every dimension of the group is a loop of its own, none may be split
            left_dims.clear(), right_dims.clear();
            for (int d = group.from_begin; d < group.from_end; ++d) left_dims.push_back(fmt::format(" l{}!", loop++));
            for (int d = group.to_begin; d < group.to_end; ++d) right_dims.push_back(fmt::format(" l{}!", loop++));
        }
        left += join(left_dims);
        right += join(right_dims);
    }
    return left + " ->" + right;
}

// The part [begin, begin + size) of a loop, for operators that name the shape of their result: it shrinks by as much as
// the loop does.
std::function<Attributes(Types, const Attributes&, std::string_view, std::int64_t, std::int64_t)>
part_of_result(Operator (*op)()) {
    return [op](Types in, const Attributes& a, std::string_view loop, std::int64_t, std::int64_t size) {
        const TensorType out{in[0].dtype, to_shape(a.integers("shape"))};
        const LoopDims dims = resolve_loops(op(), in, {&out, 1}, a);
        Shape shape = out.shape;
        for (std::size_t i = 0; i < dims.loops.size(); ++i) {
            const int dim = LoopDims::dimension_of(dims.outputs[0], static_cast<int>(i));
            if (dims.loops[i].name == loop && dim >= 0) shape[dim] = shape[dim] / dims.loops[i].size * size;
        }
        Attributes part = a;
        part.set("shape", to_vector(shape));
        return part;
    };
}

// Strides of a reshaped view, where they exist: each group must be contiguous within itself.
std::optional<Layout> reshape_layout(const Shape& from, const Layout& layout, const Shape& to) {
    Layout result{to, layout.offset};
    for (const Group& group : match_dimensions(from, to)) {
        std::int64_t stride = 1, expected = -1;
        for (int i = group.from_end - 1; i >= group.from_begin; --i) {
            if (from[i] == 1) continue;
            if (expected < 0)
                stride = layout.strides[i];
            else if (layout.strides[i] != expected)
                return std::nullopt;
            expected = layout.strides[i] * from[i];
        }
        for (int j = group.to_end - 1; j >= group.to_begin; --j) {
            result.strides[j] = stride;
            stride *= to[j];
        }
    }
    return result;
}

Operator reshape() {
    return {
        .name = "reshape", // {shape}
        .loops = [](Types in,
                    const Attributes& a) { return reshape_loops(in[0].shape, to_shape(a.integers("shape"))); },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("reshape", in, 1, 1);
            const Shape to = to_shape(a.integers("shape"));
            expect(to.elements() == in[0].elements(), "reshape", in, fmt::format("cannot become {}", to_string(to)));
            return {{in[0].dtype, to}};
        },
        .gradient =
            [](GradientBuilder& g) {
                g.set(0, g.emit("reshape", {g.gradient()}, {{"shape", to_vector(g.shape(g.input(0)))}}));
            },
        .cost = [](Types, Types, const Attributes&) { return Cost{}; },
        .view = [](const TensorType& in, const Layout& layout,
                   const Attributes& a) -> std::optional<std::vector<Layout>> {
            const auto result = reshape_layout(in.shape, layout, to_shape(a.integers("shape")));
            if (!result) return std::nullopt;
            return std::vector{*result};
        },
        .view_back = [](const Shape& in, const TensorType& out, const Layout& layout,
                        const Attributes&) { return reshape_layout(out.shape, layout, in); },
        .part = part_of_result(reshape),
        .linear = Linear::first,
    };
}

Operator transpose() {
    return {
        .name = "transpose", // {permutation}: output dimension i is input dimension permutation[i]
        .loops =
            [](Types in, const Attributes& a) {
                std::string from, to;
                for (int d = 0; d < in[0].shape.rank(); ++d) from += fmt::format(" l{}", d);
                for (std::int64_t d : a.integers("permutation")) to += fmt::format(" l{}", d);
                return from + " -> " + to;
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("transpose", in, 1, 1);
            const auto& permutation = a.integers("permutation");
            std::vector<bool> seen(permutation.size(), false);
            TensorType out{in[0].dtype, {}};
            for (std::int64_t d : permutation) {
                expect(d >= 0 && d < in[0].shape.rank() && permutation.size() == seen.size() &&
                           !seen[static_cast<std::size_t>(d)],
                       "transpose", in, "the permutation does not name each dimension once");
                seen[static_cast<std::size_t>(d)] = true;
                out.shape.push_back(in[0].shape[static_cast<int>(d)]);
            }
            expect(out.shape.rank() == in[0].shape.rank(), "transpose", in,
                   "the permutation does not name each dimension once");
            return {out};
        },
        .gradient =
            [](GradientBuilder& g) {
                const auto& permutation = g.attributes().integers("permutation");
                std::vector<std::int64_t> inverse(permutation.size());
                for (std::size_t i = 0; i < permutation.size(); ++i)
                    inverse[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
                g.set(0, g.emit("transpose", {g.gradient()}, {{"permutation", inverse}}));
            },
        .cost = [](Types, Types, const Attributes&) { return Cost{}; },
        .view = [](const TensorType&, const Layout& layout, const Attributes& a) -> std::optional<std::vector<Layout>> {
            Layout result{{}, layout.offset};
            for (std::int64_t d : a.integers("permutation"))
                result.strides.push_back(layout.strides[static_cast<int>(d)]);
            return std::vector{result};
        },
        .view_back = [](const Shape&, const TensorType&, const Layout& layout,
                        const Attributes& a) -> std::optional<Layout> {
            Layout back = layout;
            const auto& permutation = a.integers("permutation");
            for (std::size_t d = 0; d < permutation.size(); ++d)
                back.strides[static_cast<int>(permutation[d])] = layout.strides[static_cast<int>(d)];
            return back;
        },
        .linear = Linear::first,
    };
}

Operator expand() {
    return {
        .name = "expand", // {shape}: dimensions of size 1 repeat, new ones come in front
        .loops =
            [](Types in, const Attributes& a) {
                const Shape to = to_shape(a.integers("shape"));
                std::string from, into;
                for (int d = 0; d < to.rank(); ++d) into += fmt::format(" l{}", d);
                for (int d = 0; d < in[0].shape.rank(); ++d) {
                    const int at = d + to.rank() - in[0].shape.rank();
                    from += in[0].shape[d] == to[at] ? fmt::format(" l{}", at) : " 1";
                }
                return from + " -> " + into;
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("expand", in, 1, 1);
            const Shape to = to_shape(a.integers("shape"));
            const int added = to.rank() - in[0].shape.rank();
            bool fits = added >= 0;
            for (int d = 0; fits && d < in[0].shape.rank(); ++d)
                fits = in[0].shape[d] == 1 || in[0].shape[d] == to[d + added];
            expect(fits, "expand", in, fmt::format("cannot become {}", to_string(to)));
            return {{in[0].dtype, to}};
        },
        .gradient = [](GradientBuilder& g) { g.set(0, g.reduce_to_input(g.gradient(), 0)); },
        .cost = [](Types, Types, const Attributes&) { return Cost{}; },
        .view = [](const TensorType& in, const Layout& layout,
                   const Attributes& a) -> std::optional<std::vector<Layout>> {
            const Shape to = to_shape(a.integers("shape"));
            const int added = to.rank() - in.shape.rank();
            Layout result{to, layout.offset};
            for (int d = 0; d < to.rank(); ++d)
                result.strides[d] = d < added || in.shape[d - added] != to[d] ? 0 : layout.strides[d - added];
            return std::vector{result};
        },
        .part = part_of_result(expand),
        .linear = Linear::first,
    };
}

// contiguous: the same elements, dense
Operator contiguous() {
    return {
        .name = "contiguous",
        .loops = loops("r* -> r*"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("contiguous", in, 1, 1);
            return {in[0]};
        },
        .gradient = [](GradientBuilder& g) { g.set(0, g.gradient()); },
        .cost = streaming(0),
        .accepts = Accepts::strided,
        .linear = Linear::first,
        .is_copy = true,
    };
}

} // namespace

std::vector<Operator> shape_operators() { return {reshape(), transpose(), expand(), contiguous()}; }

} // namespace tutti::ops

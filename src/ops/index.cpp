// Operators that look elements up by index.
#include "ops/families.h"

namespace tutti::ops {
namespace {

bool is_index(DType dtype) { return dtype == DType::int64 || dtype == DType::int32; }

// Where this part of the table starts in the whole one. Rows of other parts count as zero, so parts add up.
Attributes part_of_rows(Types, const Attributes& a, std::string_view loop, std::int64_t begin, std::int64_t size) {
    Attributes part = a;
    if (loop != "v") return part;
    part.set("first_row", a.integer("first_row", 0) + begin);
    if (a.has("rows")) part.set("rows", size);
    return part;
}

// embedding(table [v, h], ids [...]) {first_row, padding_row} -> [..., h]. The padding row gets no gradient.
Operator embedding() {
    return {
        .name = "embedding",
        .loops = loops("v h, r* -> r* h"),
        .infer = [](Types in, const Attributes&) -> std::vector<TensorType> {
            expect_inputs("embedding", in, 2, 2);
            expect(in[0].shape.rank() == 2 && is_index(in[1].dtype), "embedding", in,
                   "takes a table [v, h] and integer ids");
            TensorType out{in[0].dtype, in[1].shape};
            out.shape.push_back(in[0].shape[1]);
            return {out};
        },
        .gradient =
            [](GradientBuilder& g) {
                Attributes attributes = g.attributes();
                attributes.set("rows", g.shape(g.input(0))[0]);
                g.set(0, g.emit("embedding_gradient", {g.gradient(), g.input(1)}, attributes));
            },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{}, in[1].bytes() + 2 * out[0].bytes()};
            },
        .part = part_of_rows,
        .accepts = Accepts::dense,
        .linear = Linear::first,
        .lookup = TableLookup{},
    };
}

// embedding_gradient(dy [..., h], ids [...]) {rows, first_row, padding_row} -> dtable [rows, h]
Operator embedding_gradient() {
    return {
        .name = "embedding_gradient",
        .loops = loops("r* h, r* -> v h"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("embedding_gradient", in, 2, 2);
            expect(!in[0].shape.empty() && without_last(in[0].shape) == in[1].shape && is_index(in[1].dtype),
                   "embedding_gradient", in, "takes dy [..., h] and ids [...]");
            return {{wide(in[0].dtype), {a.integer("rows"), in[0].shape.back()}}};
        },
        .cost =
            [](Types in, Types out, const Attributes&) {
                return Cost{{static_cast<double>(in[0].elements())},
                            in[1].bytes() + 2 * in[0].bytes() + out[0].bytes()};
            },
        .part = part_of_rows,
        .accepts = Accepts::dense,
        .accumulates_from = 0,
        .linear = Linear::first,
        .gradient_of = "embedding",
    };
}

// gather(x, index) {dim}: y[i][j][k] = x[i][index[i][j][k]][k] for dim 1, as torch.gather
void check_gather(std::string_view op, Types in, int dim) {
    expect(in[0].shape.rank() == in[1].shape.rank() && is_index(in[1].dtype), op, in,
           "takes a tensor and integer indices of the same rank");
    for (int d = 0; d < in[0].shape.rank(); ++d)
        expect(d == dim || in[0].shape[d] == in[1].shape[d], op, in,
               fmt::format("the sizes differ in dimension {}", d));
}

std::string gather_loops(Types in, const Attributes& a, bool gradient) {
    const int rank = in[0].shape.rank(), dim = normalise_dim("gather", a.integer("dim"), rank);
    std::string whole, picked;
    for (int d = 0; d < rank; ++d) {
        whole += d == dim ? " w!" : fmt::format(" l{}", d);
        picked += d == dim ? (gradient ? " p!" : " p") : fmt::format(" l{}", d);
    }
    return gradient ? picked + "," + picked + " -> " + whole : whole + "," + picked + " -> " + picked;
}

Operator gather() {
    return {
        .name = "gather",
        .loops = [](Types in, const Attributes& a) { return gather_loops(in, a, false); },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("gather", in, 2, 2);
            check_gather("gather", in, normalise_dim("gather", a.integer("dim"), in[0].shape.rank()));
            return {{in[0].dtype, in[1].shape}};
        },
        .gradient =
            [](GradientBuilder& g) {
                const Shape shape = g.shape(g.input(0));
                const int dim = normalise_dim("gather", g.attributes().integer("dim"), shape.rank());
                g.set(0, g.emit("gather_gradient", {g.gradient(), g.input(1)},
                                {{"dim", std::int64_t{dim}}, {"size", shape[dim]}}));
            },
        .cost = streaming(0),
        .accepts = Accepts::strided,
        .linear = Linear::first,
    };
}

// gather_gradient(dy, index) {dim, size} -> dx: dy added where it was taken from
Operator gather_gradient() {
    return {
        .name = "gather_gradient",
        .loops = [](Types in, const Attributes& a) { return gather_loops(in, a, true); },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("gather_gradient", in, 2, 2);
            expect(in[0].shape == in[1].shape, "gather_gradient", in, "takes dy and indices of one shape");
            TensorType out = in[0];
            out.shape[normalise_dim("gather_gradient", a.integer("dim"), out.shape.rank())] = a.integer("size");
            return {out};
        },
        .cost = streaming(1),
        .accepts = Accepts::strided,
        .linear = Linear::first,
        .gradient_of = "gather",
    };
}

} // namespace

std::vector<Operator> index_operators() { return {embedding(), embedding_gradient(), gather(), gather_gradient()}; }

} // namespace tutti::ops

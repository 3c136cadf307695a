// Dropout. Which elements fall is a pure function of seed, step, global sample, the node's source name and the
// element's place in the whole tensor, so the backward draws the same again instead of keeping a mask, and no layout
// changes it.
#include "ops/families.h"

namespace tutti::ops {
namespace {

// dropout(x [b, ...]) {p, first_sample, offsets, whole} -> x / (1 - p), or 0.
//   `offsets` and `whole` place a part of a sample in the whole sample's shape (without b); absent: x holds whole
//   samples.
Operator dropout() {
    return {
        .name = "dropout",
        .loops =
            [](Types in, const Attributes&) {
                std::string dims;
                for (int d = 0; d < in[0].shape.rank(); ++d) dims += fmt::format(" l{}", d);
                return dims + " ->" + dims;
            },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("dropout", in, 1, 1);
            expect(is_floating(in[0].dtype) && !in[0].shape.empty(), "dropout", in, "takes floating samples");
            const double p = a.real("p");
            expect(p >= 0 && p < 1, "dropout", in, fmt::format("p = {} is not in [0, 1)", p));
            return {in[0]};
        },
        .gradient = [](GradientBuilder& g) { g.set(0, g.emit("dropout", {g.gradient()}, g.attributes())); },
        .cost = streaming(12),
        .part =
            [](Types in, const Attributes& a, std::string_view loop, std::int64_t begin, std::int64_t) {
                Attributes part = a;
                const int dim = std::stoi(std::string(loop.substr(1)));
                if (dim == 0) {
                    part.set("first_sample", a.integer("first_sample", 0) + begin);
                    return part;
                }
                std::vector<std::int64_t> offsets(static_cast<std::size_t>(in[0].shape.rank() - 1), 0);
                if (a.has("offsets")) offsets = a.integers("offsets");
                offsets[static_cast<std::size_t>(dim - 1)] += begin;
                part.set("offsets", offsets);
                if (!a.has("whole")) {
                    std::vector<std::int64_t> whole = to_vector(in[0].shape);
                    whole.erase(whole.begin());
                    part.set("whole", whole);
                }
                return part;
            },
        .accepts = Accepts::strided,
        .overwrites = 0,
        .linear = Linear::first,
        .drops = "p",
        .only_drops = true,
    };
}

} // namespace

std::vector<Operator> random_operators() { return {dropout()}; }

} // namespace tutti::ops

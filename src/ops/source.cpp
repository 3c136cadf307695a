// Operators without inputs: constants, positions, rotary tables, and the scalars that change per step.
#include "ops/families.h"

namespace tutti::ops {
namespace {

std::string shape_loops(const Attributes& a) {
    std::string text = "->";
    for (std::size_t d = 0; d < a.integers("shape").size(); ++d) text += fmt::format(" l{}", d);
    return text;
}

Attributes part_of_shape(const Attributes& a, std::string_view loop, std::int64_t size) {
    Attributes part = a;
    std::vector<std::int64_t> shape = a.integers("shape");
    shape[static_cast<std::size_t>(std::stoi(std::string(loop.substr(1))))] = size;
    part.set("shape", shape);
    return part;
}

// fill {dtype, shape, value}
Operator fill() {
    return {
        .name = "fill",
        .loops = [](Types, const Attributes& a) { return shape_loops(a); },
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("fill", in, 0, 0);
            return {{a.dtype("dtype"), to_shape(a.integers("shape"))}};
        },
        .cost = streaming(0),
        .part = [](Types, const Attributes& a, std::string_view loop, std::int64_t,
                   std::int64_t size) { return part_of_shape(a, loop, size); },
        .is_constant = true,
    };
}

// iota {size, start} -> int64 [size]: start, start + 1, ...
Operator iota() {
    return {
        .name = "iota",
        .loops = loops("-> t"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("iota", in, 0, 0);
            return {{DType::int64, {a.integer("size")}}};
        },
        .cost = streaming(0),
        .part =
            [](Types, const Attributes& a, std::string_view, std::int64_t begin, std::int64_t size) {
                Attributes part = a;
                part.set("start", a.integer("start", 0) + begin);
                part.set("size", size);
                return part;
            },
    };
}

// rotary_table {positions, start, frequencies, scale, dtype} -> cos, sin [positions, frequencies]
//   of position * frequency, the product rounded to float32 as the models' authors do it, times scale.
Operator rotary_table() {
    return {
        .name = "rotary_table",
        .loops = loops("-> t p!, t p!"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("rotary_table", in, 0, 0);
            const TensorType table{a.dtype("dtype"),
                                   {a.integer("positions"), static_cast<std::int64_t>(a.reals("frequencies").size())}};
            return {table, table};
        },
        .cost = streaming(20),
        .part =
            [](Types, const Attributes& a, std::string_view, std::int64_t begin, std::int64_t size) {
                Attributes part = a;
                part.set("start", a.integer("start", 0) + begin);
                part.set("positions", size);
                return part;
            },
    };
}

// step_scalar {field, dtype} -> []: a field of StepScalars. "loss_seed" is loss_scale * inverse_tokens.
Operator step_scalar() {
    return {
        .name = "step_scalar",
        .loops = loops("->"),
        .infer = [](Types in, const Attributes& a) -> std::vector<TensorType> {
            expect_inputs("step_scalar", in, 0, 0);
            if (a.text("field") != "loss_seed") fail("[step_scalar] there is no field {}", a.text("field"));
            return {{a.dtype("dtype"), {}}};
        },
        .cost = streaming(0),
        .changes = true,
    };
}

} // namespace

std::vector<Operator> source_operators() { return {fill(), iota(), rotary_table(), step_scalar()}; }

} // namespace tutti::ops

#include "ops/families.h"

namespace tutti::ops {

Bytes traffic(Types inputs, Types outputs) {
    Bytes total;
    for (const TensorType& type : inputs) total += type.bytes();
    for (const TensorType& type : outputs) total += type.bytes();
    return total;
}

CostFunction streaming(double flops) {
    return [flops](Types inputs, Types outputs, const Attributes&) {
        const Types counted = outputs.empty() ? inputs : outputs;
        const double elements = counted.empty() ? 0 : static_cast<double>(counted[0].elements());
        return Cost{{flops * elements}, traffic(inputs, outputs)};
    };
}

DType wide(DType dtype) { return size_of(dtype) == 2 ? DType::float32 : dtype; }

void expect(bool condition, std::string_view op, Types inputs, std::string_view what) {
    if (condition) return;
    std::string types;
    for (const TensorType& type : inputs) types += (types.empty() ? "" : ", ") + to_string(type);
    fail("[{}] {}; its inputs are {}", op, what, types.empty() ? "none" : types);
}

void expect_inputs(std::string_view op, Types inputs, std::size_t least, std::size_t most) {
    expect(inputs.size() >= least && inputs.size() <= most, op, inputs,
           least == most ? fmt::format("takes {} inputs", least) : fmt::format("takes {} to {} inputs", least, most));
}

Shape to_shape(const std::vector<std::int64_t>& sizes) {
    if (sizes.size() > Shape::max_rank)
        fail("a shape has at most {} dimensions, not {}", Shape::max_rank, sizes.size());
    for (std::int64_t size : sizes)
        if (size <= 0) fail("a shape has positive sizes, not {}", size);
    return Shape(std::span(sizes));
}

Shape without_last(const Shape& shape) { return Shape(std::span(shape.begin(), shape.end() - 1)); }

Shape with_last(const Shape& shape, std::int64_t size) {
    Shape result = shape;
    result[shape.rank() - 1] = size;
    return result;
}

int normalise_dim(std::string_view op, std::int64_t dim, int rank) {
    const std::int64_t from_start = dim < 0 ? dim + rank : dim;
    if (from_start < 0 || from_start >= rank) fail("[{}] dim {} is outside a tensor of {} dimensions", op, dim, rank);
    return static_cast<int>(from_start);
}

} // namespace tutti::ops

#include "base/dtype.h"

#include <array>
#include <utility>

namespace tutti {
namespace {

struct Row {
    DType dtype;
    std::int64_t size;
    std::string_view name;
    bool floating;
};
constexpr std::array<Row, 7> rows = {{
    {DType::float64, 8, "float64", true},
    {DType::float32, 4, "float32", true},
    {DType::bfloat16, 2, "bf16", true},
    {DType::float16, 2, "fp16", true},
    {DType::int64, 8, "int64", false},
    {DType::int32, 4, "int32", false},
    {DType::boolean, 1, "bool", false},
}};

constexpr std::pair<DType, std::string_view> other_names[] = {
    {DType::bfloat16, "bfloat16"}, {DType::float16, "float16"}, {DType::float16, "half"},   {DType::float32, "fp32"},
    {DType::float32, "float"},     {DType::float64, "fp64"},    {DType::float64, "double"},
};

const Row& row_of(DType dtype) { return rows[static_cast<std::size_t>(dtype)]; }

} // namespace

std::int64_t size_of(DType dtype) { return row_of(dtype).size; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).floating; }

std::optional<DType> parse_dtype(std::string_view name) {
    for (const Row& row : rows)
        if (row.name == name) return row.dtype;
    for (const auto& [dtype, other] : other_names)
        if (name == other) return dtype;
    return std::nullopt;
}

Float16::Float16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (wide >> 16) & 0x8000;
    const std::uint32_t magnitude = wide & 0x7fffffff;
    if (magnitude > 0x7f800000) { // NaN
        bits = static_cast<std::uint16_t>(sign | 0x7e00);
    } else if (magnitude >= 0x477ff000) { // rounds to infinity
        bits = static_cast<std::uint16_t>(sign | 0x7c00);
    } else if (magnitude < 0x38800000) { // subnormal or zero: let the float adder do the rounding
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
    } else {
        const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
        bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
    }
}

Float16::operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1f;
    const std::uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    const std::uint32_t wide_exponent = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

} // namespace tutti

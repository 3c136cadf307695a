// Element types, their names as written in graphs and flags, and the two 16-bit floats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DType : std::uint8_t { float64, float32, bfloat16, float16, int64, int32, boolean };

std::int64_t size_of(DType dtype);
std::string_view name_of(DType dtype); // float64 float32 bf16 fp16 int64 int32 bool
std::optional<DType> parse_dtype(std::string_view name);
bool is_floating(DType dtype);

// Arithmetic in 16-bit floats is done in float; these types only store.
struct BFloat16 {
    std::uint16_t bits = 0;

    BFloat16() = default;
    // Round to nearest even; NaN stays NaN.
    explicit BFloat16(float value) {
        const auto wide = std::bit_cast<std::uint32_t>(value);
        bits = std::isnan(value) ? static_cast<std::uint16_t>((wide >> 16) | 0x40)
                                 : static_cast<std::uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
    }
    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
    bool operator==(const BFloat16&) const = default;
};

struct Float16 {
    std::uint16_t bits = 0;

    Float16() = default;
    explicit Float16(float value);
    explicit operator float() const;
    bool operator==(const Float16&) const = default;
};

} // namespace tutti

#include "comm/combine_parts.h"

#include "base/checked.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace tutti::comm {
namespace {

struct Sum {
    template <class T>
    static T of(T a, T b) {
        if constexpr (std::is_integral_v<T>) { // wraps instead of being undefined
            using Unsigned = std::make_unsigned_t<T>;
            return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
        } else {
            return a + b;
        }
    }
};

struct Maximum {
    template <class T>
    static T of(T a, T b) {
        const bool takes_b = (b > a) | (b != b);
        return takes_b ? b : a;
    }
};

struct Boolean {
    std::uint8_t value = 0;

    Boolean() = default;
    explicit Boolean(std::uint8_t any) : value(any != 0) {}
    explicit operator std::uint8_t() const { return value; }
};

// Blocks that stay in the first cache; the loops over a block are what the compiler makes vectors of.
template <class Stored, class Wide, class Operator>
void combine_as(std::span<const std::byte* const> parts, std::byte* result, std::int64_t bytes) {
    constexpr std::int64_t block = 1024;
    const std::int64_t count = divide_exactly(bytes, sizeof(Stored));
    auto* out = reinterpret_cast<Stored*>(result);
    std::array<Wide, block> wide;
    for (std::int64_t begin = 0; begin < count; begin += block) {
        const std::int64_t length = std::min(block, count - begin);
        const auto* first = reinterpret_cast<const Stored*>(parts[0]) + begin;
        for (std::int64_t i = 0; i < length; ++i) wide[i] = static_cast<Wide>(first[i]);
        for (const std::byte* part : parts.subspan(1)) {
            const auto* next = reinterpret_cast<const Stored*>(part) + begin;
            for (std::int64_t i = 0; i < length; ++i) wide[i] = Operator::of(wide[i], static_cast<Wide>(next[i]));
        }
        for (std::int64_t i = 0; i < length; ++i) out[begin + i] = static_cast<Stored>(wide[i]);
    }
}

template <class Operator>
void combine_by(std::span<const std::byte* const> parts, std::byte* result, std::int64_t bytes, DType dtype) {
    switch (dtype) {
    case DType::float64: return combine_as<double, double, Operator>(parts, result, bytes);
    case DType::float32: return combine_as<float, float, Operator>(parts, result, bytes);
    case DType::bfloat16: return combine_as<BFloat16, float, Operator>(parts, result, bytes);
    case DType::float16: return combine_as<Float16, float, Operator>(parts, result, bytes);
    case DType::int64: return combine_as<std::int64_t, std::int64_t, Operator>(parts, result, bytes);
    case DType::int32: return combine_as<std::int32_t, std::int32_t, Operator>(parts, result, bytes);
    case DType::boolean: return combine_as<Boolean, std::uint8_t, Maximum>(parts, result, bytes);
    }
}

} // namespace

void combine_parts(std::span<const std::byte* const> parts, std::byte* result, std::int64_t bytes, DType dtype,
                   Combine combine) {
    switch (combine) {
    case Combine::sum: return combine_by<Sum>(parts, result, bytes, dtype);
    case Combine::maximum: return combine_by<Maximum>(parts, result, bytes, dtype);
    }
}

} // namespace tutti::comm

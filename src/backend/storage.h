// The C++ types that store elements, and what an element is as a double.
#pragma once

#include "base/dtype.h"

#include <type_traits>

namespace tutti::backend {

// Calls visit with a value of the C++ type that stores the element type.
template <class Visit>
void with_storage(DType dtype, Visit visit) {
    switch (dtype) {
    case DType::float64: return visit(double{});
    case DType::float32: return visit(float{});
    case DType::bfloat16: return visit(BFloat16{});
    case DType::float16: return visit(Float16{});
    case DType::int64: return visit(std::int64_t{});
    case DType::int32: return visit(std::int32_t{});
    case DType::boolean: return visit(std::uint8_t{});
    }
}

template <class T>
double to_double(T value) {
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(value);
    else
        return static_cast<double>(static_cast<float>(value));
}

template <class T>
T from_double(double value) {
    if constexpr (std::is_same_v<T, std::uint8_t>)
        return value != 0;
    else if constexpr (std::is_arithmetic_v<T>)
        return static_cast<T>(value);
    else
        return T(static_cast<float>(value));
}

} // namespace tutti::backend

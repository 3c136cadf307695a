// Quantities with their unit in the type.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

struct Bytes {
    std::int64_t count = 0;

    auto operator<=>(const Bytes&) const = default;
    Bytes& operator-=(Bytes other) {
        count -= other.count;
        return *this;
    }
    Bytes& operator+=(Bytes other) {
        count += other.count;
        return *this;
    }
    friend Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
    friend Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
    friend Bytes operator*(std::int64_t factor, Bytes b) { return {factor * b.count}; }
};

struct Flops {
    double count = 0;

    auto operator<=>(const Flops&) const = default;
    Flops& operator+=(Flops other) {
        count += other.count;
        return *this;
    }
};

struct Seconds {
    double count = 0;

    auto operator<=>(const Seconds&) const = default;
};

std::string to_string(Bytes bytes); // "1.50 GiB"
// "256MB", "1.5 GiB", "4096": decimal or binary units. Nothing where it is no size.
std::optional<Bytes> parse_bytes(std::string_view text);
std::string to_string(Seconds seconds); // "350 ms", "2 m 05 s"

} // namespace tutti

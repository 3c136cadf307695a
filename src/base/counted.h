// Numbers with what they count, for sentences: "1 token", "2 tokens", "3 batches".
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace tutti {

template <std::integral T>
std::string plural(T count, std::string_view noun) {
    return std::string(noun) + (count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

template <std::integral T>
std::string counted(T count, std::string_view noun) {
    return fmt::format("{} {}", count, plural(count, noun));
}

} // namespace tutti

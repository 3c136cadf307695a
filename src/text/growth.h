// Rules of a hostile file may double a text again and again: none may become this much longer.
#pragma once

#include "base/error.h"

#include <cstddef>

namespace tutti::text {

inline void check_growth(std::size_t size, std::size_t from) {
    constexpr std::size_t free = 16 << 20, factor = 16;
    if (size > free && (size - free) / factor > from)
        fail("the tokenizer's rules make more than {} bytes of a text of {}", size, from);
}

} // namespace tutti::text

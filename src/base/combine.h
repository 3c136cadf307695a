// How parts of a result become the whole.
#pragma once

#include <cstdint>

namespace tutti {

enum class Combine : std::uint8_t { sum, maximum };

} // namespace tutti

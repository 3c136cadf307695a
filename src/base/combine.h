// How the parts of a result are combined.
#pragma once

#include <cstdint>

namespace tutti {

enum class Combine : std::uint8_t { sum, maximum };

} // namespace tutti

// Text files of unknown origin, read whole.
#pragma once

#include "base/file.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::formats {

// Error, before anything is read, where the file is larger than what such a file may hold. `what` is what it should be,
// for the sentence: "a plan".
std::string read_text_file(const fs::path& path, std::string_view what, std::uint64_t most);

} // namespace tutti::formats

#include "formats/text_file.h"

#include "base/error.h"

namespace tutti::formats {

std::string read_text_file(const fs::path& path, std::string_view what, std::uint64_t most) {
    const InputFile file(path);
    if (file.size() > most) fail("{} holds {} bytes; {} holds at most {}", path.string(), file.size(), what, most);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

} // namespace tutti::formats

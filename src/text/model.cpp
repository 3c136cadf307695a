#include "text/model.h"

#include <fmt/format.h>

namespace tutti::text {

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<std::vector<Id>> byte_tokens(std::string_view text, const Vocabulary& vocabulary) {
    std::vector<Id> ids;
    for (char byte : text) {
        const auto id = vocabulary.find(byte_token(static_cast<unsigned char>(byte)));
        if (!id) return std::nullopt;
        ids.push_back(*id);
    }
    return ids;
}

} // namespace tutti::text

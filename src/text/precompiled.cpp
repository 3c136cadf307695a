// SentencePiece's character maps: a double array (Darts) from texts to places in a list of texts that replace them.
#include "base/error.h"
#include "text/normalizer.h"

#include <array>
#include <cstring>
#include <optional>

namespace tutti::text {
namespace {

class CharacterMap {
  public:
    // The bytes of the double array as a number of 32 bits, the array, then texts that each end with a zero.
    CharacterMap(std::string_view map, const std::string& where) {
        std::uint32_t bytes = 0;
        if (map.size() < sizeof bytes) fail("{} holds {} bytes, and is no character map", where, map.size());
        std::memcpy(&bytes, map.data(), sizeof bytes);
        if (bytes % sizeof(std::uint32_t) != 0 || bytes == 0 || bytes > map.size() - sizeof bytes)
            fail("{} says that its array takes {} of its {} bytes", where, bytes, map.size());
        units_.resize(bytes / sizeof(std::uint32_t));
        std::memcpy(units_.data(), map.data() + sizeof bytes, bytes);
        texts_ = map.substr(sizeof bytes + bytes);
        check_utf8(texts_, where);
    }

    // What replaces a text: what the map has for the shortest beginning of it.
    std::optional<std::string_view> find(std::string_view text) const {
        std::size_t place = offset(units_[0]);
        for (char byte : text) {
            const auto label = static_cast<unsigned char>(byte);
            if (label == 0) return std::nullopt;
            place ^= label;
            if (place >= units_.size() || (units_[place] & 0x800000FFu) != label) return std::nullopt;
            const std::uint32_t unit = units_[place];
            place ^= offset(unit);
            if ((unit >> 8 & 1) != 0) return text_at(place);
        }
        return std::nullopt;
    }

  private:
    static std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }
    std::optional<std::string_view> text_at(std::size_t leaf) const {
        if (leaf >= units_.size()) return std::nullopt;
        const std::size_t begin = units_[leaf] & 0x7FFFFFFFu;
        if (begin > texts_.size()) return std::nullopt;
        if (begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80) return std::nullopt;
        const std::string_view rest = std::string_view(texts_).substr(begin);
        return rest.substr(0, rest.find('\0'));
    }

    std::vector<std::uint32_t> units_;
    std::string texts_;
};

class Precompiled final : public Normalizer {
  public:
    Precompiled(std::string_view map, const std::string& where) : map_(map, where) {
        for (char32_t c = 0; c < 0x80; ++c) changed_[c] = c == '\r' || map_.find(utf8(c)).has_value();
    }

    void apply(Section& section) const override {
        const std::string_view text = section.text;
        std::string result;
        result.reserve(text.size() + 16);
        std::size_t at_start = 0;
        const auto replace = [&](std::size_t place, std::string_view by) {
            // What is left after a removal at the beginning takes the place of what was removed.
            const bool is_start = place < section.at_start || (result.empty() && section.at_start > 0);
            result += by;
            if (is_start) at_start = result.size();
        };
        for (std::size_t place = 0; place < text.size();) {
            if (is_unchanged(text, place)) {
                replace(place, text.substr(place, 1));
                ++place;
                continue;
            }
            const std::size_t end = end_of_grapheme(text, place);
            const std::string_view grapheme = text.substr(place, end - place);
            if (const auto by = grapheme.size() < 6 ? map_.find(grapheme) : std::nullopt) {
                replace(place, *by);
                place = end;
            }
            while (place < end) {
                const std::string_view character = text.substr(place, length_from(text[place]));
                replace(place, map_.find(character).value_or(character));
                place += character.size();
            }
        }
        section = {std::move(result), at_start};
    }

  private:
    // An ASCII character that stays as it is, whatever stands behind it: then that is ASCII, too.
    bool is_unchanged(std::string_view text, std::size_t place) const {
        const auto byte = static_cast<unsigned char>(text[place]);
        return byte < 0x80 && !changed_[byte] &&
               (place + 1 == text.size() || static_cast<unsigned char>(text[place + 1]) < 0x80);
    }

    CharacterMap map_;
    std::array<bool, 0x80> changed_{};
};

} // namespace

NormalizerPointer precompiled_normalizer(std::string_view map, const std::string& where) {
    return std::make_unique<Precompiled>(map, where);
}

} // namespace tutti::text

#include "text/word_scanner.h"

#include "text/unicode.h"

#include <array>
#include <cstdint>
#include <memory>

namespace tutti::text {
namespace {

// What the patterns tell apart. A line break is white space, too.
enum Kind : std::uint8_t { other, letter, number, space, line_break };

Kind computed_kind(char32_t c) {
    if (c == '\r' || c == '\n') return line_break;
    if (is_space(c)) return space;
    const category::Mask mask = category::of(c);
    if ((mask & category::letter) != 0) return letter;
    return (mask & category::number) != 0 ? number : other;
}

constexpr char32_t tabled = 0x10000;

const std::array<Kind, tabled>& kinds() {
    static const auto table = [] {
        auto all = std::make_unique<std::array<Kind, tabled>>();
        for (char32_t c = 0; c < tabled; ++c) (*all)[c] = computed_kind(c);
        return all;
    }();
    return *table;
}

// A text and the kinds of its characters, from place to place.
class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text), kinds_(kinds().data()) {}

    bool at_end(std::size_t place) const { return place >= text_.size(); }
    // The kind of the character at a place that is not the end, and the place behind it.
    Kind kind(std::size_t place, std::size_t& next) const {
        next = place;
        const auto first = static_cast<unsigned char>(text_[place]);
        if (first < 0x80) return ++next, kinds_[first];
        const char32_t character = next_character(text_, next);
        return character < tabled ? kinds_[character] : computed_kind(character);
    }
    bool is(std::size_t place, Kind wanted) const {
        std::size_t next = 0;
        return !at_end(place) && kind(place, next) == wanted;
    }
    // Behind the characters of one kind that begin here.
    std::size_t run(std::size_t place, Kind wanted) const {
        for (std::size_t next = place; !at_end(place); place = next)
            if (kind(place, next) != wanted) break;
        return place;
    }
    char byte(std::size_t place) const { return place < text_.size() ? text_[place] : '\0'; }

    struct Spaces {
        std::size_t end, last, after_break; // the end of the run, its last character, behind its last line break or 0
    };
    Spaces spaces(std::size_t place) const {
        Spaces run{place, place, 0};
        for (std::size_t next = 0; !at_end(run.end); run.end = next) {
            const Kind here = kind(run.end, next);
            if (here != space && here != line_break) break;
            run.last = run.end;
            if (here == line_break) run.after_break = next;
        }
        return run;
    }

  private:
    std::string_view text_;
    const Kind* kinds_;
};

// \s+(?!\S)|\s+: all white space, but for the last character where a word follows that may take it.
std::size_t end_of_space(const Reader::Spaces& run, const Reader& reader, std::size_t begin) {
    return reader.at_end(run.end) || run.last == begin ? run.end : run.last;
}

// 's 't 're 've 'm 'll 'd behind an apostrophe; 0 where there is none of them.
std::size_t contraction(const Reader& reader, std::size_t place) {
    const char first = reader.byte(place), second = reader.byte(place + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 2;
    return 0;
}

// The same in any case; the long s (U+017F) is an s, too.
std::size_t contraction_in_any_case(const Reader& reader, std::size_t place) {
    const auto lower = [&](std::size_t i) {
        const char c = reader.byte(i);
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = lower(place), second = lower(place + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 2;
    return reader.byte(place) == '\xC5' && reader.byte(place + 1) == '\xBF' ? 2 : 0;
}

// [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,digits} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
template <std::size_t digits>
std::size_t end_of_llama_word(std::string_view text, std::size_t begin) {
    const Reader reader(text);
    std::size_t next = 0;
    const Kind kind = reader.kind(begin, next);
    if (text[begin] == '\'')
        if (const std::size_t length = contraction_in_any_case(reader, begin + 1)) return begin + 1 + length;
    if (kind == letter) return reader.run(next, letter);
    if (kind == number) {
        for (std::size_t count = 1; count < digits && reader.is(next, number); ++count) reader.kind(next, next);
        return next;
    }
    if (kind != line_break && reader.is(next, letter)) return reader.run(next, letter);
    if (kind == other || (text[begin] == ' ' && reader.is(next, other)))
        return reader.run(reader.run(next, other), line_break);
    const Reader::Spaces run = reader.spaces(begin);
    return run.after_break > 0 ? run.after_break : end_of_space(run, reader, begin);
}

struct Known {
    std::string_view pattern;
    WordScanner scanner;
};

} // namespace

const std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::size_t end_of_gpt2_word(std::string_view text, std::size_t begin) {
    const Reader reader(text);
    if (text[begin] == '\'')
        if (const std::size_t length = contraction(reader, begin + 1)) return begin + 1 + length;
    std::size_t next = 0;
    Kind kind = reader.kind(begin, next);
    if (text[begin] == ' ' && !reader.at_end(next)) {
        const std::size_t word = next;
        kind = reader.kind(word, next);
    }
    if (kind != space && kind != line_break) return reader.run(next, kind);
    return end_of_space(reader.spaces(begin), reader, begin);
}

WordScanner scanner_for(std::string_view pattern) {
    static const Known known[] = {
        {gpt2_pattern, end_of_gpt2_word},
        {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
         end_of_llama_word<3>},
        {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
         end_of_llama_word<1>},
    };
    for (const Known& one : known)
        if (one.pattern == pattern) return one.scanner;
    return nullptr;
}

} // namespace tutti::text

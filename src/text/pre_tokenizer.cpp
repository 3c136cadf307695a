#include "text/pre_tokenizer.h"

#include "text/byte_level.h"
#include "text/scripts.h"
#include "text/unicode.h"
#include "text/word_scanner.h"

#include <algorithm>
#include <utility>

namespace tutti::text {
namespace {

void add(const Piece& piece, std::size_t begin, std::size_t end, PieceSink& out) {
    if (begin < end) out.take(piece.part(begin, end));
}
void add(const Piece& piece, const std::vector<Match>& parts, PieceSink& out) {
    for (const Match& part : parts) add(piece, part.begin, part.end, out);
}
void scan(const Piece& piece, WordScanner scanner, PieceSink& out) {
    for (std::size_t begin = 0, end = 0; begin < piece.text.size(); begin = end) {
        end = scanner(piece.text, begin);
        add(piece, begin, end, out);
    }
}

// Every character for which `is_match` holds as a match of its own.
template <class IsMatch>
std::vector<Match> characters_that(std::string_view text, IsMatch is_match) {
    std::vector<Match> matches;
    std::size_t done = 0;
    for (std::size_t place = 0, next = 0; place < text.size(); place = next) {
        if (next = place; !is_match(next_character(text, next))) continue;
        if (done < place) matches.push_back({done, place, false});
        matches.push_back({place, next, true});
        done = next;
    }
    if (done < text.size()) matches.push_back({done, text.size(), false});
    return matches;
}

// A piece with a text before it, which comes from where its first character does.
Piece with_prefix(const Piece& piece, std::string_view prefix, OwnedTexts& texts) {
    return {texts.keep(std::string(prefix).append(piece.text)),
            piece.at_start > 0 ? piece.at_start + prefix.size() : 0};
}

class Split final : public PreTokenizer {
  public:
    Split(Pattern pattern, bool expression, SplitBehavior behavior, bool invert)
        : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {
        // Words leave nothing out: these two keep all of them, and nothing else.
        const bool keeps_words = behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert);
        if (expression && keeps_words) scanner_ = scanner_for(pattern_.text());
    }
    void cut(const Piece& piece, OwnedTexts&, PieceSink& out) const override {
        if (scanner_ != nullptr) return scan(piece, scanner_, out);
        add(piece, split(pattern_.matches(piece.text), behavior_, invert_), out);
    }

  private:
    Pattern pattern_;
    SplitBehavior behavior_;
    bool invert_;
    WordScanner scanner_ = nullptr;
};

class Metaspace final : public PreTokenizer {
  public:
    Metaspace(char32_t replacement, PrependScheme scheme, bool split)
        : replacement_(utf8(replacement)), scheme_(scheme), split_(split) {}

    void cut(const Piece& original, OwnedTexts& texts, PieceSink& out) const override {
        Piece piece = original;
        if (original.text.find(' ') != std::string_view::npos) {
            const std::size_t start = replaced(original.text.substr(0, original.at_start)).size();
            piece = {texts.keep(replaced(original.text)), start};
        }
        const bool prepend =
            scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && piece.at_start > 0);
        if (prepend && !piece.text.starts_with(replacement_)) piece = with_prefix(piece, replacement_, texts);
        if (!split_) return out.take(piece);
        for (std::size_t begin = 0; begin < piece.text.size();) { // each mark begins a piece
            const std::size_t end = std::min(piece.text.find(replacement_, begin + 1), piece.text.size());
            add(piece, begin, end, out);
            begin = end;
        }
    }

  private:
    std::string replaced(std::string_view text) const { return replace_all(text, " ", replacement_); }

    std::string replacement_;
    PrependScheme scheme_;
    bool split_;
};

class ByteLevel final : public PreTokenizer {
  public:
    ByteLevel(bool add_prefix_space, bool use_regex, bool characters)
        : add_prefix_space_(add_prefix_space), use_regex_(use_regex), characters_(characters) {}

    void cut(const Piece& original, OwnedTexts& texts, PieceSink& out) const override {
        Piece piece = original;
        if (add_prefix_space_ && !piece.text.starts_with(' ')) piece = with_prefix(piece, " ", texts);
        for (std::size_t begin = 0, end = 0; begin < piece.text.size(); begin = end) {
            end = use_regex_ ? end_of_gpt2_word(piece.text, begin) : piece.text.size();
            const Piece word = piece.part(begin, end);
            out.take(characters_ ? spelled(word, texts) : word);
        }
    }

  private:
    static Piece spelled(const Piece& word, OwnedTexts& texts) {
        const std::size_t start = to_byte_characters(word.text.substr(0, word.at_start)).size();
        return {texts.keep(to_byte_characters(word.text)), start};
    }

    bool add_prefix_space_, use_regex_, characters_;
};

class Whitespace final : public PreTokenizer {
  public:
    void cut(const Piece& piece, OwnedTexts&, PieceSink& out) const override {
        enum class Kind { space, word, other };
        std::size_t begin = 0;
        Kind previous = Kind::space;
        for (std::size_t place = 0, next = 0; place < piece.text.size(); place = next) {
            next = place;
            const char32_t c = next_character(piece.text, next);
            const Kind kind = is_word(c) ? Kind::word : is_space(c) ? Kind::space : Kind::other;
            if (kind != previous) {
                if (previous != Kind::space) add(piece, begin, place, out);
                begin = place;
                previous = kind;
            }
        }
        if (previous != Kind::space) add(piece, begin, piece.text.size(), out);
    }
};

// Splits at characters of some kind.
template <class IsMatch>
class CharacterSplit final : public PreTokenizer {
  public:
    CharacterSplit(IsMatch is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
    void cut(const Piece& piece, OwnedTexts&, PieceSink& out) const override {
        add(piece, split(characters_that(piece.text, is_match_), behavior_), out);
    }

  private:
    IsMatch is_match_;
    SplitBehavior behavior_;
};

class UnicodeScripts final : public PreTokenizer {
  public:
    void cut(const Piece& piece, OwnedTexts&, PieceSink& out) const override {
        // Characters of no script go with those before them; before the first script, they are left out.
        std::size_t begin = piece.text.size();
        std::uint8_t previous = no_script;
        for (std::size_t place = 0, next = 0; place < piece.text.size(); place = next) {
            next = place;
            const std::uint8_t script = script_of(next_character(piece.text, next));
            if (script == no_script || script == previous) continue;
            if (previous != no_script) add(piece, begin, place, out);
            begin = place;
            previous = script;
        }
        add(piece, begin, piece.text.size(), out);
    }
};

class FixedLength final : public PreTokenizer {
  public:
    explicit FixedLength(std::size_t length) : length_(length) {}
    void cut(const Piece& piece, OwnedTexts&, PieceSink& out) const override {
        for (std::size_t begin = 0, end = 0; begin < piece.text.size(); begin = end) {
            for (std::size_t i = 0; i < length_ && end < piece.text.size(); ++i) end += length_from(piece.text[end]);
            add(piece, begin, end, out);
        }
    }

  private:
    std::size_t length_;
};

template <class IsMatch>
PreTokenizerPointer character_split(IsMatch is_match, SplitBehavior behavior) {
    return std::make_unique<CharacterSplit<IsMatch>>(is_match, behavior);
}

bool is_punctuation(char32_t c) {
    return c < 0x80 ? is_ascii_punctuation(c) : (category::in_unicode_8(c) & category::punctuation) != 0;
}
bool is_number(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : (category::of(c) & category::number) != 0; }

} // namespace

PreTokenizerPointer split_pre_tokenizer(Pattern pattern, bool expression, SplitBehavior behavior, bool invert) {
    return std::make_unique<Split>(std::move(pattern), expression, behavior, invert);
}
PreTokenizerPointer metaspace_pre_tokenizer(char32_t replacement, PrependScheme scheme, bool split) {
    return std::make_unique<Metaspace>(replacement, scheme, split);
}
PreTokenizerPointer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex, bool characters) {
    return std::make_unique<ByteLevel>(add_prefix_space, use_regex, characters);
}
PreTokenizerPointer whitespace_pre_tokenizer() { return std::make_unique<Whitespace>(); }
PreTokenizerPointer whitespace_split_pre_tokenizer() { return character_split(is_space, SplitBehavior::removed); }
PreTokenizerPointer punctuation_pre_tokenizer(SplitBehavior behavior) {
    return character_split(is_punctuation, behavior);
}
PreTokenizerPointer digits_pre_tokenizer(bool individual) {
    return character_split(is_number, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}
PreTokenizerPointer delimiter_pre_tokenizer(char32_t delimiter) {
    return character_split([delimiter](char32_t c) { return c == delimiter; }, SplitBehavior::removed);
}
PreTokenizerPointer unicode_scripts_pre_tokenizer() { return std::make_unique<UnicodeScripts>(); }
PreTokenizerPointer fixed_length_pre_tokenizer(std::size_t length) { return std::make_unique<FixedLength>(length); }

} // namespace tutti::text

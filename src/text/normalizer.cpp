#include "text/normalizer.h"

#include "text/byte_level.h"
#include "text/growth.h"

#include <algorithm>
#include <utility>

namespace tutti::text {
namespace {

// Rewrites a section character by character: `emit(character, result)` adds what becomes of it.
template <class Emit>
void rewrite(Section& section, Emit emit) {
    std::string result;
    result.reserve(section.text.size() + 16);
    std::size_t at_start = 0;
    for (std::size_t place = 0; place < section.text.size();) {
        const bool is_start = place < section.at_start;
        emit(next_character(section.text, place), result);
        if (is_start) at_start = result.size();
    }
    section = {std::move(result), at_start};
}

bool is_mark(char32_t c) { return c >= 0x300 && (category::of(c) & category::mark) != 0; }
bool is_nonspacing_mark(char32_t c) {
    return c >= 0x300 && (category::in_unicode_8(c) & category::nonspacing_mark) != 0;
}

class SequenceNormalizer final : public Normalizer {
  public:
    explicit SequenceNormalizer(std::vector<NormalizerPointer> parts) : parts_(std::move(parts)) {}
    void apply(Section& section) const override {
        const std::size_t before = section.text.size();
        for (const NormalizerPointer& part : parts_) {
            part->apply(section);
            check_growth(section.text.size(), before);
        }
    }

  private:
    std::vector<NormalizerPointer> parts_;
};

class FormNormalizer final : public Normalizer {
  public:
    explicit FormNormalizer(NormalForm form) : form_(form) {}
    void apply(Section& section) const override {
        if (is_ascii(section.text)) return;
        std::string result = normalized(section.text, form_);
        if (section.at_start > 0) {
            const std::size_t start = normalized(section.text.substr(0, section.at_start), form_).size();
            section.at_start = std::min(std::max(start, std::size_t{1}), result.size());
        }
        section.text = std::move(result);
    }

  private:
    NormalForm form_;
};

void lower(Section& section) {
    if (!is_ascii(section.text)) return rewrite(section, [](char32_t c, std::string& out) { append_lower(out, c); });
    for (char& c : section.text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
}

class LowercaseNormalizer final : public Normalizer {
  public:
    void apply(Section& section) const override { lower(section); }
};

class StripAccentsNormalizer final : public Normalizer {
  public:
    void apply(Section& section) const override {
        if (is_ascii(section.text)) return;
        rewrite(section, [](char32_t c, std::string& out) {
            if (!is_mark(c)) append(out, c);
        });
    }
};

class StripNormalizer final : public Normalizer {
  public:
    StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
    void apply(Section& section) const override {
        const std::string& text = section.text;
        std::size_t begin = 0, end = text.size();
        for (std::size_t next = 0; left_ && next < text.size(); begin = next)
            if (!is_space(next_character(text, next))) break;
        while (right_ && end > begin) {
            const std::size_t last = before(text, end);
            std::size_t place = last;
            if (!is_space(next_character(text, place))) break;
            end = last;
        }
        const Piece kept = Piece{text, section.at_start}.part(begin, end);
        section = {std::string(kept.text), kept.at_start};
    }

  private:
    bool left_, right_;
};

class ReplaceNormalizer final : public Normalizer {
  public:
    ReplaceNormalizer(Pattern pattern, std::string content)
        : pattern_(std::move(pattern)), content_(std::move(content)) {}
    void apply(Section& section) const override {
        if (section.text.empty()) return;
        std::string result;
        std::size_t at_start = 0;
        for (const Match& match : pattern_.matches(section.text)) {
            if (match.matched) {
                result += content_; // it comes from the last byte of the match
                check_growth(result.size(), section.text.size());
                if (std::max(match.end, std::size_t{1}) <= section.at_start) at_start = result.size();
            } else {
                result.append(section.text, match.begin, match.end - match.begin);
                if (match.begin < section.at_start)
                    at_start = result.size() - (match.end - std::min(match.end, section.at_start));
            }
        }
        section = {std::move(result), at_start};
    }

  private:
    Pattern pattern_;
    std::string content_;
};

class PrependNormalizer final : public Normalizer {
  public:
    explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
    void apply(Section& section) const override {
        if (section.text.empty()) return;
        section.text.insert(0, prefix_);
        if (section.at_start > 0) section.at_start += prefix_.size();
    }

  private:
    std::string prefix_;
};

bool is_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer final : public Normalizer {
  public:
    explicit BertNormalizer(BertNormalizerOptions options) : options_(options) {}
    void apply(Section& section) const override {
        if (options_.clean_text) rewrite(section, clean);
        if (options_.handle_chinese_chars && !is_ascii(section.text)) rewrite(section, set_ideographs_apart);
        if (options_.strip_accents.value_or(options_.lowercase) && !is_ascii(section.text)) {
            decompose_.apply(section);
            rewrite(section, [](char32_t c, std::string& out) {
                if (!is_nonspacing_mark(c)) append(out, c);
            });
        }
        if (options_.lowercase) lower(section);
    }

  private:
    static void clean(char32_t c, std::string& out) {
        if (c > ' ' && c < 0x7F) {
            out += static_cast<char>(c);
        } else if (is_space(c) && (c == '\t' || c == '\n' || c == '\r' || !is_control(c))) {
            out += ' ';
        } else if (c != 0 && c != replacement_character && !is_control(c)) {
            append(out, c);
        }
    }
    static bool is_control(char32_t c) {
        return (category::in_unicode_8(c) & category::format_control_or_private) != 0;
    }
    static void set_ideographs_apart(char32_t c, std::string& out) {
        const bool apart = is_ideograph(c);
        if (apart) out += ' ';
        append(out, c);
        if (apart) out += ' ';
    }

    BertNormalizerOptions options_;
    FormNormalizer decompose_{NormalForm::nfd};
};

// The rules of SentencePiece's nmt normalization.
class NmtNormalizer final : public Normalizer {
  public:
    void apply(Section& section) const override {
        rewrite(section, [](char32_t c, std::string& out) {
            if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
                return;
            const bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                               (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                               c == 0xFEFF || c == replacement_character;
            append(out, space ? U' ' : c);
        });
    }
};

class ByteLevelNormalizer final : public Normalizer {
  public:
    void apply(Section& section) const override {
        const std::size_t start = std::min(section.at_start, section.text.size());
        section.at_start = to_byte_characters(std::string_view(section.text).substr(0, start)).size();
        section.text = to_byte_characters(section.text);
    }
};

} // namespace

NormalizerPointer sequence_normalizer(std::vector<NormalizerPointer> parts) {
    return std::make_unique<SequenceNormalizer>(std::move(parts));
}
NormalizerPointer form_normalizer(NormalForm form) { return std::make_unique<FormNormalizer>(form); }
NormalizerPointer lowercase_normalizer() { return std::make_unique<LowercaseNormalizer>(); }
NormalizerPointer strip_accents_normalizer() { return std::make_unique<StripAccentsNormalizer>(); }
NormalizerPointer strip_normalizer(bool left, bool right) { return std::make_unique<StripNormalizer>(left, right); }
NormalizerPointer replace_normalizer(Pattern pattern, std::string content) {
    return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
}
NormalizerPointer prepend_normalizer(std::string prefix) {
    return std::make_unique<PrependNormalizer>(std::move(prefix));
}
NormalizerPointer bert_normalizer(BertNormalizerOptions options) { return std::make_unique<BertNormalizer>(options); }
NormalizerPointer nmt_normalizer() { return std::make_unique<NmtNormalizer>(); }
NormalizerPointer byte_level_normalizer() { return std::make_unique<ByteLevelNormalizer>(); }

} // namespace tutti::text

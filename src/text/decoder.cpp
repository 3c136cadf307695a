#include "text/decoder.h"

#include "text/byte_level.h"
#include "text/growth.h"
#include "text/unicode.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace tutti::text {
namespace {

class SequenceDecoder final : public Decoder {
  public:
    explicit SequenceDecoder(std::vector<DecoderPointer> parts) : parts_(std::move(parts)) {}
    Tokens apply(Tokens tokens) const override {
        const std::size_t before = size_of(tokens);
        for (const DecoderPointer& part : parts_) {
            tokens = part->apply(std::move(tokens));
            check_growth(size_of(tokens), before);
        }
        return tokens;
    }

  private:
    static std::size_t size_of(const Tokens& tokens) {
        std::size_t size = 0;
        for (const std::string& token : tokens) size += token.size() + 1;
        return size;
    }

    std::vector<DecoderPointer> parts_;
};

class ByteLevelDecoder final : public Decoder {
  public:
    Tokens apply(Tokens tokens) const override {
        std::string bytes;
        for (const std::string& token : tokens) bytes += from_byte_characters(token).value_or(token);
        return {to_utf8(bytes)};
    }
};

// Tokens such as <0x41> as bytes; bytes in a row that are no text become one U+FFFD each.
class ByteFallbackDecoder final : public Decoder {
  public:
    Tokens apply(Tokens tokens) const override {
        Tokens result;
        std::string bytes;
        const auto finish = [&] {
            if (first_invalid(bytes) == std::string::npos) {
                if (!bytes.empty()) result.push_back(bytes);
            } else {
                result.insert(result.end(), bytes.size(), utf8(replacement_character));
            }
            bytes.clear();
        };
        for (std::string& token : tokens) {
            if (const int byte = byte_of(token); byte >= 0) {
                bytes += static_cast<char>(static_cast<unsigned char>(byte));
                continue;
            }
            finish();
            result.push_back(std::move(token));
        }
        finish();
        return result;
    }

  private:
    static int byte_of(const std::string& token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
        const auto digit = [](char c) {
            if (c >= '0' && c <= '9') return c - '0';
            if (c >= 'a' && c <= 'f') return c - 'a' + 10;
            return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        };
        const int high = digit(token[3]), low = digit(token[4]);
        if (token[3] == '+' && low >= 0) return low; // Rust's numbers may have a sign
        return high < 0 || low < 0 ? -1 : 16 * high + low;
    }
};

class FuseDecoder final : public Decoder {
  public:
    Tokens apply(Tokens tokens) const override {
        std::string text;
        for (const std::string& token : tokens) text += token;
        return {std::move(text)};
    }
};

// What BERT's tokenizer makes of spaces before punctuation and contractions.
std::string cleaned(std::string text) {
    static constexpr std::pair<std::string_view, std::string_view> rules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : rules) text = replace_all(text, from, to);
    return text;
}

class WordPieceDecoder final : public Decoder {
  public:
    WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
    Tokens apply(Tokens tokens) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (i > 0 && tokens[i].starts_with(prefix_))
                tokens[i].erase(0, prefix_.size());
            else if (i > 0)
                tokens[i].insert(tokens[i].begin(), ' ');
            if (cleanup_) tokens[i] = cleaned(tokens[i]);
        }
        return tokens;
    }

  private:
    std::string prefix_;
    bool cleanup_;
};

class BpeDecoder final : public Decoder {
  public:
    explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
    Tokens apply(Tokens tokens) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
        return tokens;
    }

  private:
    std::string suffix_;
};

class MetaspaceDecoder final : public Decoder {
  public:
    MetaspaceDecoder(char32_t replacement, PrependScheme scheme) : replacement_(utf8(replacement)), scheme_(scheme) {}
    Tokens apply(Tokens tokens) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const bool prepended = i == 0 && scheme_ != PrependScheme::never;
            tokens[i] = replace_all(tokens[i], replacement_, prepended ? "" : " ");
        }
        return tokens;
    }

  private:
    std::string replacement_;
    PrependScheme scheme_;
};

class CtcDecoder final : public Decoder {
  public:
    CtcDecoder(std::string padding, std::string word_delimiter, bool cleanup)
        : padding_(std::move(padding)), word_delimiter_(std::move(word_delimiter)), cleanup_(cleanup) {}
    Tokens apply(Tokens tokens) const override {
        const auto repeated = std::ranges::unique(tokens);
        tokens.erase(repeated.begin(), repeated.end());
        for (std::string& token : tokens) {
            token = replace_all(token, padding_, "");
            if (cleanup_) token = replace_all(cleaned(token), word_delimiter_, " ");
        }
        std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
        return tokens;
    }

  private:
    std::string padding_, word_delimiter_;
    bool cleanup_;
};

class ReplaceDecoder final : public Decoder {
  public:
    ReplaceDecoder(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
    Tokens apply(Tokens tokens) const override {
        for (std::string& token : tokens) {
            if (token.empty()) continue;
            std::string result;
            for (const Match& match : pattern_.matches(token)) {
                result += match.matched ? content_ : token.substr(match.begin, match.end - match.begin);
                check_growth(result.size(), token.size());
            }
            token = std::move(result);
        }
        return tokens;
    }

  private:
    Pattern pattern_;
    std::string content_;
};

class StripDecoder final : public Decoder {
  public:
    StripDecoder(char32_t content, std::uint64_t start, std::uint64_t stop)
        : content_(utf8(content)), start_(start), stop_(stop) {}
    Tokens apply(Tokens tokens) const override {
        for (std::string& token : tokens) {
            std::string_view rest = token;
            for (std::uint64_t i = 0; i < start_ && rest.starts_with(content_); ++i)
                rest.remove_prefix(content_.size());
            for (std::uint64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
            token = std::string(rest);
        }
        return tokens;
    }

  private:
    std::string content_;
    std::uint64_t start_, stop_;
};

} // namespace

DecoderPointer sequence_decoder(std::vector<DecoderPointer> parts) {
    return std::make_unique<SequenceDecoder>(std::move(parts));
}
DecoderPointer byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }
DecoderPointer byte_fallback_decoder() { return std::make_unique<ByteFallbackDecoder>(); }
DecoderPointer fuse_decoder() { return std::make_unique<FuseDecoder>(); }
DecoderPointer word_piece_decoder(std::string prefix, bool cleanup) {
    return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}
DecoderPointer bpe_decoder(std::string suffix) { return std::make_unique<BpeDecoder>(std::move(suffix)); }
DecoderPointer metaspace_decoder(char32_t replacement, PrependScheme scheme) {
    return std::make_unique<MetaspaceDecoder>(replacement, scheme);
}
DecoderPointer ctc_decoder(std::string padding, std::string word_delimiter, bool cleanup) {
    return std::make_unique<CtcDecoder>(std::move(padding), std::move(word_delimiter), cleanup);
}
DecoderPointer replace_decoder(Pattern pattern, std::string content) {
    return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
DecoderPointer strip_decoder(char32_t content, std::uint64_t start, std::uint64_t stop) {
    return std::make_unique<StripDecoder>(content, start, stop);
}

} // namespace tutti::text

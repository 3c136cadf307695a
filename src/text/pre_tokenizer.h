// Pre-tokenizers: they cut a normalized text into words, on which the model works one by one.
#pragma once

#include "text/growth.h"
#include "text/pattern.h"
#include "text/splitting.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::text {

// Owns texts that pieces refer to, where they differ from the input; of an input of so many bytes.
class OwnedTexts {
  public:
    explicit OwnedTexts(std::size_t input) : input_(input) {}
    std::string_view keep(std::string text) {
        check_growth(bytes_ += text.size(), input_);
        return texts_.emplace_back(std::move(text));
    }

  private:
    std::deque<std::string> texts_;
    std::size_t input_, bytes_ = 0;
};

// Takes pieces one after another: the next pre-tokenizer, or the model.
class PieceSink {
  public:
    virtual void take(const Piece& piece) = 0;

  protected:
    ~PieceSink() = default;
};

class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    // Hands on the pieces of a piece that is not empty; none of them is empty. Thread-safe.
    virtual void cut(const Piece& piece, OwnedTexts& texts, PieceSink& out) const = 0;
};

using PreTokenizerPointer = std::unique_ptr<const PreTokenizer>;

enum class PrependScheme : std::uint8_t { first, never, always };

// A regular expression that scanner_for knows is scanned by hand, where each match becomes a piece.
PreTokenizerPointer split_pre_tokenizer(Pattern pattern, bool expression, SplitBehavior behavior, bool invert);
PreTokenizerPointer metaspace_pre_tokenizer(char32_t replacement, PrependScheme scheme, bool split);
// `characters`: pieces become texts of GPT-2's alphabet; otherwise they stay bytes, for a model that takes these.
PreTokenizerPointer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex, bool characters);
PreTokenizerPointer whitespace_pre_tokenizer();       // words and what is neither word nor white space
PreTokenizerPointer whitespace_split_pre_tokenizer(); // at white space
PreTokenizerPointer punctuation_pre_tokenizer(SplitBehavior behavior);
PreTokenizerPointer digits_pre_tokenizer(bool individual);
PreTokenizerPointer delimiter_pre_tokenizer(char32_t delimiter);
PreTokenizerPointer unicode_scripts_pre_tokenizer();
PreTokenizerPointer fixed_length_pre_tokenizer(std::size_t length);

} // namespace tutti::text

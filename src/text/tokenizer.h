// Tokenizers: from text to ids of tokens, and back.
#pragma once

#include "base/file.h"
#include "text/vocabulary.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::text {

// Encodes texts one after another, and remembers words; one per thread.
class Encoder {
  public:
    virtual ~Encoder() = default;
    // Adds the ids of a text, with the special tokens that the tokenizer puts around one if they are wanted. Error for
    // a text that is not UTF-8.
    virtual void encode(std::string_view text, bool special_tokens, std::vector<Id>& ids) = 0;
};

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    // Refers to the tokenizer.
    virtual std::unique_ptr<Encoder> encoder() const = 0;
    // Ids without a token add nothing. Thread-safe.
    virtual std::string decode(std::span<const Id> ids, bool skip_special_tokens) const = 0;

    virtual std::optional<Id> id_of(std::string_view token) const = 0;
    // All ids are below.
    virtual std::uint64_t end_of_ids() const = 0;

    std::vector<Id> encode(std::string_view text, bool special_tokens) const {
        std::vector<Id> ids;
        encoder()->encode(text, special_tokens, ids);
        return ids;
    }
};

// From a folder with a tokenizer.json or, where there is none, a tokenizer.model of SentencePiece; or from one of these
// files itself.
std::unique_ptr<const Tokenizer> open_tokenizer(const fs::path& path);

// What a tokenizer.json holds; `where` is its name, for error sentences.
std::unique_ptr<const Tokenizer> read_tokenizer_json(std::string_view json, const std::string& where);

// A model of SentencePiece, with the special tokens that tokenizer_config.json beside it names, if it is there.
std::unique_ptr<const Tokenizer> open_sentence_piece(const fs::path& model);

} // namespace tutti::text

// Models: from a word, as the pre-tokenizer cut it, to ids of tokens.
#pragma once

#include "text/vocabulary.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::text {

class Model {
  public:
    virtual ~Model() = default;

    // Adds the ids of a word's tokens. Thread-safe.
    virtual void encode(std::string_view word, std::vector<Id>& ids) const = 0;
    // Where a word may be cut, behind `begin`, so that both parts by themselves give the same tokens: a short part is
    // likely to come again. Its end where nowhere.
    virtual std::size_t next_cut(std::string_view word, std::size_t begin) const {
        static_cast<void>(begin);
        return word.size();
    }
    // Tokens of the model; without added ones.
    virtual const Vocabulary& vocabulary() const = 0;
    // How many tokens the model counts itself; added tokens get ids from there on.
    virtual std::size_t size() const { return vocabulary().size(); }
};

// "<0x41>", the token that stands for a byte.
std::string byte_token(unsigned char byte);

// The id of the token for each byte of the text; nothing where one is missing.
std::optional<std::vector<Id>> byte_tokens(std::string_view text, const Vocabulary& vocabulary);

} // namespace tutti::text

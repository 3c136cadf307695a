// The tokens of a model: texts and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::text {

using Id = std::uint32_t;

// A hash of a text, and of what follows it.
std::uint64_t hash_of(std::string_view text);

class Vocabulary {
  public:
    // A text that is there already gets the new id. Ids without a text are allowed in between.
    void add(std::string_view token, Id id);
    // Error that names `where` for ids far above the number of tokens: nothing is kept per id that a file only claims.
    static void check_ids(std::size_t tokens, std::uint64_t largest, const std::string& where);

    std::optional<Id> find(std::string_view token) const;
    std::optional<std::string_view> token(Id id) const;
    // Of different texts.
    std::size_t size() const { return tokens_.size(); }
    Id end() const { return static_cast<Id>(by_id_.size()); } // beyond the largest id

  private:
    struct Token {
        std::size_t begin;
        std::uint32_t length;
        Id id;
    };
    std::string_view text_of(const Token& token) const {
        return std::string_view(texts_).substr(token.begin, token.length);
    }
    std::size_t slot_of(std::string_view token, std::uint64_t hash) const;
    void grow();

    std::string texts_;
    std::vector<Token> tokens_;
    struct Slot {
        std::uint32_t hash = 0, token = 0; // token: its index and one; 0: empty
    };
    std::vector<Slot> slots_ = std::vector<Slot>(16);
    std::vector<std::uint32_t> by_id_; // index and one
};

} // namespace tutti::text

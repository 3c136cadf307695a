// Tokens that are found in the input as they are, before the model sees it: special ones, and others that were added to
// a vocabulary.
#pragma once

#include "text/model.h"
#include "text/normalizer.h"
#include "text/token_trie.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tutti::text {

struct AddedToken {
    std::string content;
    bool single_word = false; // not as a part of a word
    bool lstrip = false;      // takes the white space before it
    bool rstrip = false;      // and behind it
    bool normalized = true;   // is found in the normalized text, as its own normalized form
    bool special = false;     // is left out of decoded text where that is asked for

    bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
  public:
    // A part of a text: a token, or what lies between tokens.
    struct Part {
        std::size_t begin = 0, end = 0;
        std::optional<Id> id{};
    };

    // Tokens that the model has keep its ids; the others get ids from the end of the model's on, in their order.
    void add(const std::vector<AddedToken>& tokens, const Model& model, const Normalizer* normalizer);

    std::vector<Part> find_in_input(std::string_view text) const { return find(text, input_); }
    std::vector<Part> find_in_normalized(std::string_view text) const { return find(text, normalized_); }

    // What an id decodes to; nothing where it is not of an added token.
    std::optional<std::string_view> token(Id id) const;
    std::optional<Id> id(const std::string& content) const;
    bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
    Id end() const; // beyond the largest id

  private:
    // The texts that are looked for in one kind of text.
    struct Finder {
        TokenTrie trie;
        std::array<bool, 256> begins{}; // bytes that one of them begins with
        bool empty = true;

        void add(std::string_view text, Id id);
        // The end and the id of the longest that begins here.
        std::optional<std::pair<std::size_t, Id>> longest(std::string_view text, std::size_t begin) const;
    };
    std::vector<Part> find(std::string_view text, const Finder& finder) const;

    struct Entry {
        AddedToken token;
        std::string decoded;
    };
    std::unordered_map<std::string, Id> ids_;
    std::unordered_map<Id, Entry> tokens_;
    std::unordered_set<std::string> special_;
    Finder input_, normalized_;
};

} // namespace tutti::text

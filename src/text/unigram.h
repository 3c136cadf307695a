// A unigram language model (Kudo, 2018): of all ways to cut a word into tokens, the one whose scores add up to most.
#pragma once

#include "text/model.h"
#include "text/token_trie.h"

#include <utility>

namespace tutti::text {

class Unigram final : public Model {
  public:
    using Pieces = std::vector<std::pair<std::string, double>>; // token and score; its place is its id

    // Error that names `where` for an unknown token beyond the pieces.
    Unigram(const Pieces& pieces, std::optional<std::uint64_t> unknown, bool byte_fallback, std::string where);

    void encode(std::string_view word, std::vector<Id>& ids) const override;
    const Vocabulary& vocabulary() const override { return vocabulary_; }
    std::size_t size() const override { return scores_.size(); }

  private:
    Id unknown() const;
    void add(std::string_view piece, std::vector<Id>& ids) const;

    Vocabulary vocabulary_;
    TokenTrie trie_;
    std::vector<double> scores_;
    double unknown_score_ = 0;
    std::optional<Id> unknown_;
    bool byte_fallback_ = false;
    std::string where_;
};

} // namespace tutti::text

// WordPiece: the longest token at the beginning of a word, then the longest continuing one, until the end.
#pragma once

#include "text/model.h"
#include "text/token_trie.h"

namespace tutti::text {

struct WordPieceOptions {
    std::string unknown = "[UNK]";
    std::string continuing_prefix = "##";
    std::uint64_t longest_word = 100; // in characters; longer ones are unknown
};

class WordPiece final : public Model {
  public:
    WordPiece(Vocabulary vocabulary, WordPieceOptions options, std::string where);

    void encode(std::string_view word, std::vector<Id>& ids) const override;
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    void add_unknown(std::vector<Id>& ids) const;

    Vocabulary vocabulary_;
    TokenTrie trie_;
    std::optional<TokenTrie::Node> continuing_; // behind the prefix
    WordPieceOptions options_;
    std::string where_;
};

} // namespace tutti::text

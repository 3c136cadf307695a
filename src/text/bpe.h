// Byte pair encoding (Sennrich et al., 2016): a word's characters, of which the pair that was learnt first is merged
// until none is left that was learnt.
#pragma once

#include "text/bpe_cuts.h"
#include "text/flat_map.h"
#include "text/model.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::text {

struct BpeOptions {
    std::optional<std::string> unknown{};
    std::string continuing_prefix{}, end_suffix{}; // of all characters of a word but the first; of the last
    bool fuse_unknown = false;
    bool byte_fallback = false;
    bool ignore_merges = false; // a word that is a token is that token
};

class Bpe final : public Model {
  public:
    using Merges = std::vector<std::pair<std::string, std::string>>;

    // Error that names `where` for a merge of what is no token.
    Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, std::string where);

    // From now on words are bytes, each of which stands for its character of GPT-2's alphabet: what a byte-level
    // pre-tokenizer would make of them. Not with a prefix or a suffix.
    void take_bytes();
    bool can_take_bytes() const { return options_.continuing_prefix.empty() && options_.end_suffix.empty(); }

    void encode(std::string_view word, std::vector<Id>& ids) const override;
    std::size_t next_cut(std::string_view word, std::size_t begin) const override { return cuts_.next(word, begin); }
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    struct Merge {
        std::uint32_t rank = 0;
        Id id = 0;
    };
    static constexpr std::uint32_t no_rank = ~std::uint32_t{0};
    static constexpr std::int64_t no_id = -1;

    const Merge* merge_of(Id left, Id right) const { return merges_.find(std::uint64_t{left} << 32 | right); }
    std::uint32_t rank_of(Id left, Id right) const;
    void add_symbol(std::string_view symbol, std::vector<Id>& symbols, std::optional<Id>& unknown) const;
    std::vector<Id>& symbols_of(std::string_view word) const;
    void merge_few(std::vector<Id>& symbols) const;
    void merge_many(std::vector<Id>& symbols) const;

    Vocabulary vocabulary_;
    FlatMap<Merge> merges_;
    std::vector<Id> merged_; // what each merge gives, by rank
    BpeCuts cuts_;
    BpeOptions options_;
    std::string where_;
    bool bytes_ = false;
    std::unique_ptr<Vocabulary> words_;      // tokens as the words that they are in bytes
    std::array<std::int64_t, 256> single_{}; // ids of words of one byte: ASCII, or all where words are bytes
};

} // namespace tutti::text

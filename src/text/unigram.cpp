#include "text/unigram.h"

#include "base/error.h"
#include "text/unicode.h"

#include <algorithm>
#include <limits>

namespace tutti::text {
namespace {

constexpr double unknown_penalty = 10; // below the lowest score

// The best cut of the word up to a place: its score, and where its last piece begins.
struct Cut {
    double score = 0;
    std::size_t begin = 0;
    Id id = 0;
    bool reached = false;

    bool improved_by(double other) const { return !reached || other > score; }
};

} // namespace

Unigram::Unigram(const Pieces& pieces, std::optional<std::uint64_t> unknown, bool byte_fallback, std::string where)
    : byte_fallback_(byte_fallback), where_(std::move(where)) {
    if (unknown && *unknown >= pieces.size())
        fail("{}: unk_id is {}, but there are {} tokens", where_, *unknown, pieces.size());
    if (unknown) unknown_ = static_cast<Id>(*unknown);
    double least = std::numeric_limits<double>::infinity();
    for (Id id = 0; id < pieces.size(); ++id) {
        const auto& [token, score] = pieces[id];
        vocabulary_.add(token, id);
        if (!token.empty()) trie_.add(token, id);
        scores_.push_back(score);
        least = std::min(least, score);
    }
    unknown_score_ = least - unknown_penalty;
}

Id Unigram::unknown() const {
    if (!unknown_) fail("{}: a text has an unknown character, and there is no unk_id", where_);
    return *unknown_;
}

// A piece of the best cut: a token, or characters that are unknown in a row.
void Unigram::add(std::string_view piece, std::vector<Id>& ids) const {
    if (const auto id = vocabulary_.find(piece)) return ids.push_back(*id);
    if (byte_fallback_)
        if (const auto bytes = byte_tokens(piece, vocabulary_)) {
            ids.insert(ids.end(), bytes->begin(), bytes->end());
            return;
        }
    ids.push_back(unknown());
}

void Unigram::encode(std::string_view word, std::vector<Id>& ids) const {
    thread_local std::vector<Cut> cuts;
    cuts.assign(word.size() + 1, {});
    for (std::size_t begin = 0; begin < word.size();) {
        const double score = cuts[begin].score;
        const std::size_t next = begin + length_from(word[begin]);
        bool single = false; // a token of this character alone
        TokenTrie::Node node = TokenTrie::root;
        for (std::size_t end = begin; end < word.size();) {
            node = trie_.child(node, word[end++]);
            if (node == TokenTrie::root) break;
            if (!trie_.ends_token(node)) continue;
            const Id id = trie_.id(node);
            if (cuts[end].improved_by(scores_[id] + score)) cuts[end] = {scores_[id] + score, begin, id, true};
            single = single || end == next;
        }
        if (!single && cuts[next].improved_by(unknown_score_ + score))
            cuts[next] = {unknown_score_ + score, begin, unknown(), true};
        begin = next;
    }
    thread_local std::vector<std::string_view> pieces; // the last first
    pieces.clear();
    bool fusing = false;
    for (std::size_t end = word.size(); end > 0;) {
        const Cut& cut = cuts[end];
        std::string_view piece = word.substr(cut.begin, end - cut.begin);
        const bool is_unknown = unknown_ && cut.id == *unknown_;
        if (is_unknown && fusing) {
            piece = word.substr(cut.begin, piece.size() + pieces.back().size());
            pieces.pop_back();
        }
        fusing = is_unknown;
        pieces.push_back(piece);
        end = cut.begin;
    }
    std::for_each(pieces.rbegin(), pieces.rend(), [&](std::string_view piece) { add(piece, ids); });
}

} // namespace tutti::text

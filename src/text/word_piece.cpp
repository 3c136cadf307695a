#include "text/word_piece.h"

#include "base/error.h"
#include "formats/json.h"
#include "text/unicode.h"

namespace tutti::text {

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options, std::string where)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), where_(std::move(where)) {
    for (Id id = 0; id < vocabulary_.end(); ++id)
        if (const auto token = vocabulary_.token(id)) trie_.add(*token, id);
    continuing_ = trie_.node_of(options_.continuing_prefix);
}

void WordPiece::add_unknown(std::vector<Id>& ids) const {
    const auto unknown = vocabulary_.find(options_.unknown);
    if (!unknown)
        fail("{}: the unk_token {} is needed, and is not in the vocabulary", where_,
             formats::in_quotes(options_.unknown));
    ids.push_back(*unknown);
}

void WordPiece::encode(std::string_view word, std::vector<Id>& ids) const {
    if (count_characters(word) > options_.longest_word) return add_unknown(ids);
    const std::size_t before = ids.size();
    for (std::size_t place = 0; place < word.size();) {
        std::size_t longest = place;
        Id id = 0;
        if (place == 0 || continuing_) {
            TokenTrie::Node node = place == 0 ? TokenTrie::root : *continuing_;
            for (std::size_t end = place; end < word.size();) {
                node = trie_.child(node, word[end++]);
                if (node == TokenTrie::root) break;
                if (trie_.ends_token(node)) {
                    longest = end;
                    id = trie_.id(node);
                }
            }
        }
        if (longest == place) { // one piece that is unknown makes the whole word unknown
            ids.resize(before);
            return add_unknown(ids);
        }
        ids.push_back(id);
        place = longest;
    }
}

} // namespace tutti::text

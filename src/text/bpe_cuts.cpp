#include "text/bpe_cuts.h"

#include "text/unicode.h"

namespace tutti::text {

BpeCuts::BpeCuts(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges)
    : anywhere_(true) {
    for (Id id = 0; id < vocabulary.end(); ++id) {
        const auto token = vocabulary.token(id);
        if (!token || token->empty() || length_from(token->front()) != token->size()) continue;
        std::size_t place = 0;
        const char32_t character = next_character(*token, place);
        if (character < ascii)
            ascii_tokens_.set(character);
        else
            tokens_[character] = 1;
    }
    for (const auto& [left, right] : merges) {
        if (left.empty() || right.empty()) continue;
        std::size_t last = before(left, left.size()), first = 0;
        const char32_t end = next_character(left, last), begin = next_character(right, first);
        if (end < ascii && begin < ascii)
            joined_ascii_[end].set(begin);
        else
            joined_[key(end, begin)] = 1;
    }
}

bool BpeCuts::is_token(char32_t character) const {
    return character < ascii ? ascii_tokens_.test(character) : tokens_.find(character) != nullptr;
}

bool BpeCuts::may_be_cut(char32_t left, char32_t right) const {
    if (!is_token(left) || !is_token(right)) return false;
    if (left < ascii && right < ascii) return !joined_ascii_[left].test(right);
    return joined_.find(key(left, right)) == nullptr;
}

std::size_t BpeCuts::next(std::string_view word, std::size_t begin) const {
    if (!anywhere_) return word.size();
    char32_t left = next_character(word, begin);
    while (begin < word.size()) {
        std::size_t behind = begin;
        const char32_t right = next_character(word, behind);
        if (may_be_cut(left, right)) return begin;
        left = right;
        begin = behind;
    }
    return begin;
}

} // namespace tutti::text

#include "text/added_tokens.h"

#include "text/unicode.h"

#include <algorithm>

namespace tutti::text {
namespace {

bool ends_with_word(std::string_view text) {
    if (text.empty()) return false;
    std::size_t last = before(text, text.size());
    return is_word(next_character(text, last));
}
bool starts_with_word(std::string_view text) {
    std::size_t place = 0;
    return !text.empty() && is_word(next_character(text, place));
}
std::size_t begin_of_trailing_space(std::string_view text) {
    std::size_t begin = text.size();
    while (begin > 0) {
        const std::size_t last = before(text, begin);
        std::size_t place = last;
        if (!is_space(next_character(text, place))) break;
        begin = last;
    }
    return begin;
}
std::size_t end_of_leading_space(std::string_view text, std::size_t place) {
    for (std::size_t next = place; place < text.size(); place = next)
        if (!is_space(next_character(text, next))) break;
    return place;
}

} // namespace

void AddedTokens::Finder::add(std::string_view text, Id id) {
    if (text.empty()) return;
    if (const auto node = trie.node_of(text); node && trie.ends_token(*node)) return; // the first of equal ones
    trie.add(text, id);
    begins[static_cast<unsigned char>(text.front())] = true;
    empty = false;
}

std::optional<std::pair<std::size_t, Id>> AddedTokens::Finder::longest(std::string_view text, std::size_t begin) const {
    std::optional<std::pair<std::size_t, Id>> found;
    TokenTrie::Node node = TokenTrie::root;
    for (std::size_t end = begin; end < text.size();) {
        node = trie.child(node, text[end++]);
        if (node == TokenTrie::root) break;
        if (trie.ends_token(node)) found = {end, trie.id(node)};
    }
    return found;
}

Id AddedTokens::end() const {
    Id end = 0;
    for (const auto& [id, entry] : tokens_) end = std::max(end, id + 1);
    return end;
}

void AddedTokens::add(const std::vector<AddedToken>& tokens, const Model& model, const Normalizer* normalizer) {
    Id next = std::max(static_cast<Id>(model.size()), end());
    std::vector<Id> order;
    for (const AddedToken& token : tokens) {
        if (token.content.empty()) continue;
        auto known = id(token.content);
        if (!known) known = model.vocabulary().find(token.content);
        const Id id = known ? *known : next++;
        Entry entry{token, token.content};
        if (token.normalized && normalizer != nullptr) {
            Section section{token.content, token.content.size()};
            normalizer->apply(section);
            entry.decoded = section.text;
        }
        ids_[token.content] = id;
        if (token.special) special_.insert(token.content);
        tokens_.insert_or_assign(id, std::move(entry));
        order.push_back(id);
    }
    for (Id id : order) {
        const Entry& entry = tokens_.at(id);
        (entry.token.normalized ? normalized_ : input_).add(entry.decoded, id);
    }
}

std::vector<AddedTokens::Part> AddedTokens::find(std::string_view text, const Finder& finder) const {
    if (finder.empty) return {{0, text.size(), std::nullopt}};
    std::vector<Part> parts;
    std::size_t done = 0;
    for (std::size_t place = 0; place < text.size();) {
        if (!finder.begins[static_cast<unsigned char>(text[place])]) {
            ++place;
            continue;
        }
        const auto found = finder.longest(text, place);
        if (!found) {
            ++place;
            continue;
        }
        std::size_t begin = place, end = place = found->first;
        const AddedToken& token = tokens_.at(found->second).token;
        if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
            continue;
        if (token.lstrip) begin = std::max(begin_of_trailing_space(text.substr(0, begin)), done);
        if (token.rstrip) end = end_of_leading_space(text, end);
        if (done < begin) parts.push_back({done, begin, std::nullopt});
        parts.push_back({begin, end, found->second});
        done = end;
    }
    if (done != text.size()) parts.push_back({done, text.size(), std::nullopt});
    return parts;
}

std::optional<std::string_view> AddedTokens::token(Id id) const {
    const auto found = tokens_.find(id);
    if (found == tokens_.end()) return std::nullopt;
    return found->second.decoded;
}

std::optional<Id> AddedTokens::id(const std::string& content) const {
    const auto found = ids_.find(content);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

} // namespace tutti::text

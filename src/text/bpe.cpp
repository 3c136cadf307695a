#include "text/bpe.h"

#include "base/error.h"
#include "formats/json.h"
#include "text/byte_level.h"
#include "text/unicode.h"

#include <algorithm>
#include <functional>

namespace tutti::text {
namespace {

// Below this, looking at all pairs for the next merge is quicker than keeping them in order.
constexpr std::size_t few = 40;

} // namespace

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, std::string where)
    : vocabulary_(std::move(vocabulary)), merges_(merges.size()), options_(std::move(options)),
      where_(std::move(where)) {
    const std::size_t prefix = options_.continuing_prefix.size();
    const auto id_of = [&](std::size_t rank, const std::string& token) {
        const auto id = vocabulary_.find(token);
        if (!id)
            fail("{}: merge {} needs the token {}, which is not in the vocabulary", where_, rank,
                 formats::in_quotes(token));
        return *id;
    };
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const auto& [left, right] = merges[rank];
        if (right.size() < prefix)
            fail("{}: merge {} has {} on its right, which is shorter than the continuing_subword_prefix", where_, rank,
                 formats::in_quotes(right));
        const std::uint64_t pair = std::uint64_t{id_of(rank, left)} << 32 | id_of(rank, right);
        merged_.push_back(id_of(rank, left + right.substr(prefix)));
        merges_[pair] = {static_cast<std::uint32_t>(rank), merged_.back()};
    }
    if (can_take_bytes() && !options_.ignore_merges) cuts_ = BpeCuts(vocabulary_, merges);
    single_.fill(no_id);
    if (can_take_bytes())
        for (unsigned char c = 0; c < 0x80; ++c)
            if (const auto id = vocabulary_.find(utf8(c))) single_[c] = *id;
}

void Bpe::take_bytes() {
    TUTTI_CHECK(can_take_bytes(), "{}", where_);
    cuts_ = {};
    bytes_ = true;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const auto id = vocabulary_.find(utf8(character_of_byte(static_cast<unsigned char>(byte))));
        single_[byte] = id ? std::int64_t{*id} : no_id;
    }
    if (!options_.ignore_merges) return;
    words_ = std::make_unique<Vocabulary>();
    for (Id id = 0; id < vocabulary_.end(); ++id)
        if (const auto token = vocabulary_.token(id))
            if (const auto word = from_byte_characters(*token)) words_->add(*word, id);
}

std::uint32_t Bpe::rank_of(Id left, Id right) const {
    const Merge* merge = merge_of(left, right);
    return merge == nullptr ? no_rank : merge->rank;
}

// One character, with the prefix or the suffix that it has. An unknown one waits in `unknown`, so that those behind it
// can be fused with it.
void Bpe::add_symbol(std::string_view symbol, std::vector<Id>& symbols, std::optional<Id>& unknown) const {
    if (const auto id = vocabulary_.find(symbol)) {
        if (unknown) symbols.push_back(*unknown);
        unknown.reset();
        symbols.push_back(*id);
        return;
    }
    if (options_.byte_fallback)
        if (const auto bytes = byte_tokens(symbol, vocabulary_)) {
            symbols.insert(symbols.end(), bytes->begin(), bytes->end());
            return;
        }
    if (!options_.unknown) return; // there is no token for it
    if (unknown) {
        if (!options_.fuse_unknown) symbols.push_back(*unknown);
        return;
    }
    unknown = vocabulary_.find(*options_.unknown);
    if (!unknown)
        fail("{}: the unk_token {} is needed, and is not in the vocabulary", where_,
             formats::in_quotes(*options_.unknown));
}

std::vector<Id>& Bpe::symbols_of(std::string_view word) const {
    thread_local std::vector<Id> symbols;
    symbols.clear();
    std::optional<Id> unknown;
    std::string changed;
    for (std::size_t place = 0; place < word.size();) {
        const std::int64_t single = single_[static_cast<unsigned char>(word[place])];
        if (single != no_id && !unknown) {
            symbols.push_back(static_cast<Id>(single));
            ++place;
            continue;
        }
        const std::size_t begin = place;
        place += bytes_ ? 1 : length_from(word[place]);
        std::string_view symbol = word.substr(begin, place - begin);
        if (bytes_) {
            changed = utf8(character_of_byte(static_cast<unsigned char>(word[begin])));
            symbol = changed;
        } else if (!can_take_bytes()) {
            changed = begin == 0 ? "" : options_.continuing_prefix;
            changed += symbol;
            if (place == word.size()) changed += options_.end_suffix;
            symbol = changed;
        }
        add_symbol(symbol, symbols, unknown);
    }
    if (unknown) symbols.push_back(*unknown);
    return symbols;
}

void Bpe::merge_few(std::vector<Id>& symbols) const {
    std::array<std::uint32_t, few> ranks;
    std::size_t count = symbols.size();
    for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == no_rank) break;
        symbols[best] = merge_of(symbols[best], symbols[best + 1])->id;
        --count;
        for (std::size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
        for (std::size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1];
        if (best > 0) ranks[best - 1] = rank_of(symbols[best - 1], symbols[best]);
        if (best + 1 < count) ranks[best] = rank_of(symbols[best], symbols[best + 1]);
    }
    symbols.resize(count);
}

// A heap of pairs by rank, then by place. Merged symbols stay linked; an entry whose pair is no longer there is
// skipped.
void Bpe::merge_many(std::vector<Id>& symbols) const {
    constexpr std::uint32_t none = ~std::uint32_t{0}, gone = none - 1;
    struct Links {
        std::uint32_t previous, next;
    };
    if (symbols.size() >= gone) fail("{}: a word of {} characters is too long", where_, symbols.size());
    const auto count = static_cast<std::uint32_t>(symbols.size());
    std::vector<Links> links(count);
    std::vector<std::uint64_t> queue; // rank, place of the left symbol
    const auto entry = [&](std::uint32_t left, std::uint32_t right) {
        const std::uint32_t rank = rank_of(symbols[left], symbols[right]);
        return std::pair(std::uint64_t{rank} << 32 | left, rank != no_rank);
    };
    for (std::uint32_t i = 0; i < count; ++i) {
        links[i] = {i == 0 ? none : i - 1, i + 1 < count ? i + 1 : none};
        if (i + 1 == count) break;
        if (const auto [one, merges] = entry(i, i + 1); merges) queue.push_back(one);
    }
    std::ranges::make_heap(queue, std::greater<>());
    const auto push = [&](std::uint32_t left, std::uint32_t right) {
        const auto [one, merges] = entry(left, right);
        if (!merges) return;
        queue.push_back(one);
        std::ranges::push_heap(queue, std::greater<>());
    };
    while (!queue.empty()) {
        std::ranges::pop_heap(queue, std::greater<>());
        const auto left = static_cast<std::uint32_t>(queue.back());
        const Id id = merged_[queue.back() >> 32];
        queue.pop_back();
        const std::uint32_t right = links[left].next;
        if (right == none || right == gone) continue;
        const Merge* merge = merge_of(symbols[left], symbols[right]);
        if (merge == nullptr || merge->id != id) continue;
        symbols[left] = id;
        const std::uint32_t next = links[right].next;
        links[right].next = gone;
        links[left].next = next;
        if (next != none) {
            links[next].previous = left;
            push(left, next);
        }
        if (links[left].previous != none) push(links[left].previous, left);
    }
    std::size_t kept = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        if (links[i].next != gone) symbols[kept++] = symbols[i];
    symbols.resize(kept);
}

void Bpe::encode(std::string_view word, std::vector<Id>& ids) const {
    if (word.empty()) return;
    if (options_.ignore_merges)
        if (const auto id = (bytes_ ? *words_ : vocabulary_).find(word)) return ids.push_back(*id);
    std::vector<Id>& symbols = symbols_of(word);
    if (symbols.size() > few)
        merge_many(symbols);
    else if (symbols.size() > 1)
        merge_few(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
}

} // namespace tutti::text

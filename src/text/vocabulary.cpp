#include "text/vocabulary.h"

#include "base/error.h"

#include <cstring>

namespace tutti::text {
namespace {

constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15ull;

__extension__ using Wide = unsigned __int128;

std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t loaded(const char* bytes, std::size_t count) {
    std::uint64_t value = 0;
    if (count > 0) std::memcpy(&value, bytes, count); // an empty text may have no address
    return value;
}

} // namespace

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = multiplier ^ text.size();
    const char* bytes = text.data();
    std::size_t left = text.size();
    for (; left > 8; left -= 8, bytes += 8) hash = folded(hash ^ loaded(bytes, 8), multiplier);
    return folded(hash ^ loaded(bytes, left), 0xD6E8FEB86659FD93ull);
}

std::size_t Vocabulary::slot_of(std::string_view token, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t i = hash & mask;
    while (slots_[i].token != 0 && (slots_[i].hash != tag || text_of(tokens_[slots_[i].token - 1]) != token))
        i = (i + 1) & mask;
    return i;
}

void Vocabulary::grow() {
    slots_.assign(2 * slots_.size(), {});
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const std::uint64_t hash = hash_of(text_of(tokens_[i]));
        slots_[slot_of(text_of(tokens_[i]), hash)] = {static_cast<std::uint32_t>(hash >> 32),
                                                      static_cast<std::uint32_t>(i + 1)};
    }
}

void Vocabulary::add(std::string_view token, Id id) {
    if (2 * (tokens_.size() + 1) > slots_.size()) grow();
    const std::uint64_t hash = hash_of(token);
    Slot& slot = slots_[slot_of(token, hash)];
    if (slot.token == 0) {
        tokens_.push_back({texts_.size(), static_cast<std::uint32_t>(token.size()), id});
        texts_ += token;
        slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(tokens_.size())};
    }
    tokens_[slot.token - 1].id = id;
    if (id >= by_id_.size()) by_id_.resize(std::size_t{id} + 1);
    by_id_[id] = slot.token;
}

void Vocabulary::check_ids(std::size_t tokens, std::uint64_t largest, const std::string& where) {
    constexpr std::uint64_t most = 1u << 30;
    if (largest > most || largest > 4 * std::uint64_t{tokens} + (1u << 20))
        fail("{} has the id {}, which is too large for its {} tokens", where, largest, tokens);
}

std::optional<Id> Vocabulary::find(std::string_view token) const {
    const Slot& slot = slots_[slot_of(token, hash_of(token))];
    if (slot.token == 0) return std::nullopt;
    return tokens_[slot.token - 1].id;
}

std::optional<std::string_view> Vocabulary::token(Id id) const {
    if (id >= by_id_.size() || by_id_[id] == 0) return std::nullopt;
    return text_of(tokens_[by_id_[id] - 1]);
}

} // namespace tutti::text

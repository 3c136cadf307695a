// The tokens of words that were met before. Of words that fall on the same place the last one stays, so that its size
// is bounded, and a hit touches one line of the processor's cache.
#pragma once

#include "text/vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::text {

class WordCache {
  public:
    static constexpr std::size_t longest_word = 30, most_tokens = 8;

    // Adds the tokens of a word that is at most `longest_word` long, if it is here.
    bool find(std::string_view word, std::uint64_t hash, std::vector<Id>& ids) const {
        const Slot& slot = slots_[hash & (slots_.size() - 1)];
        if (slot.length != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) return false;
        ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
        return true;
    }
    void keep(std::string_view word, std::uint64_t hash, std::span<const Id> ids) {
        if (ids.size() > most_tokens) return;
        if (++kept_ > 2 * slots_.size() && slots_.size() < most_places) grow();
        Slot& slot = slots_[hash & (slots_.size() - 1)];
        slot.length = static_cast<std::uint8_t>(word.size());
        slot.count = static_cast<std::uint8_t>(ids.size());
        std::memcpy(slot.word, word.data(), word.size());
        std::ranges::copy(ids, slot.ids);
    }

  private:
    static constexpr std::size_t first_places = 1 << 8, most_places = 1 << 16; // 16 KiB, 4 MiB
    struct alignas(64) Slot {
        std::uint8_t length = 0, count = 0; // a word has at least one byte: 0 is empty
        char word[longest_word];
        Id ids[most_tokens];
    };

    // What was there is met again, or not worth keeping.
    void grow() {
        slots_.assign(16 * slots_.size(), {});
        kept_ = 0;
    }

    std::vector<Slot> slots_ = std::vector<Slot>(first_places);
    std::size_t kept_ = 0;
};

} // namespace tutti::text

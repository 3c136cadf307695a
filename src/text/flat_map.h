// A hash table from 64-bit keys to small values, filled once and then only read: one probe into one array finds most.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::text {

constexpr std::uint64_t mix(std::uint64_t key) {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ key >> 29;
}

template <class Value>
class FlatMap {
  public:
    // No key may be all ones.
    explicit FlatMap(std::size_t expected = 0) { grow(std::bit_ceil(2 * expected + 16)); }

    const Value* find(std::uint64_t key) const {
        for (std::size_t i = mix(key) & mask_;; i = (i + 1) & mask_) {
            if (slots_[i].key == key) return &slots_[i].value;
            if (slots_[i].key == absent) return nullptr;
        }
    }
    // The value of the key, made where it is not there.
    Value& operator[](std::uint64_t key) {
        if (2 * (count_ + 1) > slots_.size()) grow(2 * slots_.size());
        Slot& slot = slot_of(key);
        if (slot.key == absent) {
            slot.key = key;
            ++count_;
        }
        return slot.value;
    }
    std::size_t size() const { return count_; }

  private:
    static constexpr std::uint64_t absent = ~std::uint64_t{0};
    struct Slot {
        std::uint64_t key = absent;
        Value value{};
    };

    Slot& slot_of(std::uint64_t key) {
        std::size_t i = mix(key) & mask_;
        while (slots_[i].key != absent && slots_[i].key != key) i = (i + 1) & mask_;
        return slots_[i];
    }
    void grow(std::size_t size) {
        std::vector<Slot> old(size);
        old.swap(slots_);
        mask_ = size - 1;
        for (const Slot& slot : old)
            if (slot.key != absent) slot_of(slot.key) = slot;
    }

    std::vector<Slot> slots_;
    std::size_t mask_ = 0, count_ = 0;
};

} // namespace tutti::text

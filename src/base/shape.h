// Shape: up to eight sizes (or strides) held inline, so that types are plain values that never allocate.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tutti {

class Shape {
  public:
    static constexpr int max_rank = 8;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
    explicit Shape(std::span<const std::int64_t> sizes) {
        for (std::int64_t size : sizes) push_back(size);
    }

    int rank() const { return rank_; }
    bool empty() const { return rank_ == 0; }
    std::int64_t& operator[](int i) { return sizes_[static_cast<std::size_t>(i)]; }
    std::int64_t operator[](int i) const { return sizes_[static_cast<std::size_t>(i)]; }
    std::int64_t back() const { return (*this)[rank_ - 1]; }
    const std::int64_t* begin() const { return sizes_.data(); }
    const std::int64_t* end() const { return sizes_.data() + rank_; }
    std::int64_t* begin() { return sizes_.data(); }
    std::int64_t* end() { return sizes_.data() + rank_; }

    void push_back(std::int64_t size) {
        TUTTI_CHECK(rank_ < max_rank, "rank {}", rank_);
        sizes_[static_cast<std::size_t>(rank_++)] = size;
    }
    void erase(int i) {
        std::copy(begin() + i + 1, end(), begin() + i);
        --rank_;
    }
    // The product of all sizes; 1 for a scalar.
    std::int64_t elements() const {
        std::int64_t product = 1;
        for (std::int64_t size : *this) product *= size;
        return product;
    }

    friend bool operator==(const Shape& a, const Shape& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

  private:
    std::array<std::int64_t, max_rank> sizes_{};
    int rank_ = 0;
};

// Strides of a dense row-major tensor.
Shape dense_strides(const Shape& shape);
// "[8,32,64]"
std::string to_string(const Shape& shape);

} // namespace tutti

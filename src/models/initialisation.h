// Initial weights. Every element is a pure function of seed, tensor name and place, so each rank can make any slice of
// any tensor by itself.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::models {

struct Initialisation {
    enum class Kind { normal, constant };

    Kind kind = Kind::constant;
    double value = 0; // the mean, or the constant
    double deviation = 0;
    std::int64_t zero_row = -1; // the padding row of an embedding
    std::int64_t row_size = 0;  // elements of a row; needed only where there is a zero row

    static Initialisation normal(double deviation) { return {Kind::normal, 0, deviation, -1, 0}; }
    static Initialisation constant(double value) { return {Kind::constant, value, 0, -1, 0}; }
    bool operator==(const Initialisation&) const = default;
};

// Elements [first_element, first_element + out.size()) of the tensor.
void initialise(const Initialisation& how, std::uint64_t seed, std::string_view name, std::int64_t first_element,
                std::span<float> out);

} // namespace tutti::models

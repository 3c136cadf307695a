// Texts such as "80 GiB", "200 Gb/s" or "5 us" as numbers in bytes, bytes per second, or seconds.
#pragma once

#include <optional>
#include <string_view>

namespace tutti::costs {

enum class Measure : unsigned char {
    bytes,  // B, kB, MB .. with powers of 1000, KiB, MiB .. with powers of 1024
    rate,   // the same per second, and kb/s, Mb/s, Gb/s in bits
    flops,  // TFLOP/s, GFLOP/s
    seconds // s, ms, us, ns
};

// Nothing where the text is not a number and a unit of this measure.
std::optional<double> parse_quantity(std::string_view text, Measure measure);

std::string_view example_of(Measure measure); // "80 GiB", for sentences

} // namespace tutti::costs

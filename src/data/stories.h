// The built-in text: short stories from a small grammar, so that training can be tried without any data. A few hundred
// words, one hero and one friend to keep track of, and plots that end as they began to be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::data {

// Story `index` of a seed, without a line end; a pure function.
std::string story(std::uint64_t seed, std::uint64_t index);
// Stories from the first on, each followed by an empty line, until there are at least `bytes`.
std::string generate_stories(std::uint64_t seed, std::size_t bytes);

} // namespace tutti::data

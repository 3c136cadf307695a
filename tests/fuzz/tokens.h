// What targets of training data do with what opens.
#pragma once

#include "data/token_source.h"
#include "fuzz.h"

#include <utility>

namespace tutti::fuzz {

inline void read_samples(const data::TokenSource& source) {
    TUTTI_CHECK(source.samples() > 0 && source.sequence() > 0 && !source.describe().empty(), "{}", source.name());
    const auto length = static_cast<std::size_t>(source.sequence());
    TUTTI_CHECK(length < 1 << 20, "{}", length); // of a file of some kilobytes
    std::vector<std::int64_t> input(length), targets(length);
    std::vector<std::int32_t> documents(length);
    for (const std::int64_t sample : {std::int64_t{0}, source.samples() / 2, source.samples() - 1})
        accepts([&] {
            source.read(sample, input, targets);
            check_tokens(input, 1000, sample, source);
            check_tokens(targets, 1000, sample, source);
            source.read_documents(sample, documents);
            for (std::size_t i = 0; i < length; ++i) // kernels and positions rely on it
                TUTTI_CHECK(documents[i] >= 0 && std::cmp_less_equal(documents[i], i), "{} at {}", documents[i], i);
        });
}

} // namespace tutti::fuzz

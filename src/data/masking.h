// The masked-language-model objective of BERT and RoBERTa, made from plain samples: which positions are hidden, and
// how, is a pure function of seed and sample counter.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::data {

struct Masking {
    std::int64_t mask_token = 0;
    std::int64_t vocabulary = 0; // random replacements are drawn below it
    std::uint64_t seed = 0;
    double probability = 0.15;
};

// Chooses positions (at least one) and replaces 80% of them by the mask token and 10% by a random token; 10% stay.
// Targets become the original token where chosen, and ignored_target elsewhere.
void mask_tokens(const Masking& masking, std::int64_t counter, std::span<std::int64_t> input,
                 std::span<std::int64_t> targets);

} // namespace tutti::data

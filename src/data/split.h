// Holding samples back for evaluation: one source seen as two, the last samples apart from the rest.
#pragma once

#include "data/token_source.h"

namespace tutti::data {

struct Split {
    std::shared_ptr<const TokenSource> training;
    std::shared_ptr<const TokenSource> evaluation; // nullptr where nothing is held back
};

// Error if nothing would be left to train on, or an ordered source would be cut within a step.
Split hold_out(std::shared_ptr<const TokenSource> source, std::int64_t evaluation_samples);

} // namespace tutti::data

// The order of samples: a pure function of seed and counter, so that the whole state of the loader is two numbers,
// whatever the number of replicas.
#pragma once

#include "base/philox.h"

#include <cstdint>

namespace tutti::data {

class Sampler {
  public:
    Sampler(std::int64_t samples, std::uint64_t seed, bool ordered);

    // The sample to use at a place in the endless sequence of epochs. Each epoch uses every sample once, in an order of
    // its own; an ordered source is used in its order and starts again from its beginning.
    std::int64_t at(std::int64_t counter) const;
    std::int64_t epoch(std::int64_t counter) const { return counter / samples_; }

  private:
    std::uint64_t permute(std::uint64_t value, std::uint64_t epoch) const;

    std::int64_t samples_;
    bool ordered_;
    PhiloxKey key_;
    int half_bits_ = 1; // the Feistel network permutes 2 * half_bits_ bits
};

} // namespace tutti::data

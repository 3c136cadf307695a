// ZeRO: the model data that the ranks of the data axis shard instead of each having all of it. The stages are
// DeepSpeed's; the third is PyTorch's FSDP.
#pragma once

#include "program/program.h"

#include <array>
#include <compare>
#include <span>

namespace tutti {

class Zero {
  public:
    constexpr Zero(int stage = 0) : stage_(stage) {} // as users write it: `.zero = 2`

    constexpr int stage() const { return stage_; }
    constexpr bool shards_states() const { return stage_ >= 1; } // master weights and moments
    constexpr bool shards_gradients() const { return stage_ >= 2; }
    constexpr bool shards_weights() const { return stage_ >= 3; }
    constexpr bool shards(Region chunks) const {
        return chunks == Region::weights     ? shards_weights()
               : chunks == Region::gradients ? shards_gradients()
                                             : shards_states();
    }

    constexpr auto operator<=>(const Zero&) const = default;

  private:
    int stage_;
};

// Those that differ where so many ranks share.
inline std::span<const Zero> zero_stages(int sharing) {
    static constexpr std::array<Zero, 4> all = {0, 1, 2, 3};
    return std::span(all).first(sharing > 1 ? all.size() : 1);
}

} // namespace tutti

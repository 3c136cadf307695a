// Attention in tiles, for heads of up to 96 elements.
#include "backend/cuda/attention_forward.h"

namespace tutti::backend::cuda {

std::vector<ForwardVariant> narrow_forward_variants() {
    return {forward_variant<ForwardTile<32, 2, 4, 64, 3>>(), forward_variant<ForwardTile<64, 2, 4, 64, 2>>(),
            forward_variant<ForwardTile<64, 2, 4, 128, 2>>(), forward_variant<ForwardTile<64, 1, 4, 128, 3>>(),
            forward_variant<ForwardTile<96, 2, 4, 64, 2>>()};
}

} // namespace tutti::backend::cuda

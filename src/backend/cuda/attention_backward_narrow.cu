// The gradient of attention in tiles, for heads of up to 96 elements.
#include "backend/cuda/attention_backward.h"

namespace tutti::backend::cuda {

std::vector<BackwardVariant> narrow_backward_variants() {
    return {backward_variant<BackwardTile<32, 2, 4, 128, 32, 1, 2>>(),
            backward_variant<BackwardTile<64, 2, 4, 128, 32, 1, 2>>(),
            backward_variant<BackwardTile<64, 2, 4, 64, 32, 1, 2>>(),
            backward_variant<BackwardTile<96, 1, 8, 128, 64, 1, 1>>(),
            backward_variant<BackwardTile<96, 1, 4, 64, 32, 1, 2>>()};
}

} // namespace tutti::backend::cuda

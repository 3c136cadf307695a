// The gradient of attention in tiles, for heads of up to 256 elements.
#include "backend/cuda/attention_backward.h"

namespace tutti::backend::cuda {

std::vector<BackwardVariant> wide_backward_variants() {
    return {backward_variant<BackwardTile<192, 1, 8, 64, 64, 1, 1>>(),
            backward_variant<BackwardTile<192, 1, 4, 32, 32, 1, 2>>(),
            backward_variant<BackwardTile<256, 1, 8, 64, 64, 1, 1>>(),
            backward_variant<BackwardTile<256, 1, 4, 16, 16, 1, 2>>()};
}

} // namespace tutti::backend::cuda

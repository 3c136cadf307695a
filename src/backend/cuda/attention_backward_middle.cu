// The gradient of attention in tiles, for heads of up to 128 elements.
#include "backend/cuda/attention_backward.h"

namespace tutti::backend::cuda {

std::vector<BackwardVariant> middle_backward_variants() {
    return {backward_variant<BackwardTile<128, 1, 8, 128, 64, 1, 1>>(),
            backward_variant<BackwardTile<128, 1, 4, 64, 64, 1, 2>>()};
}

} // namespace tutti::backend::cuda

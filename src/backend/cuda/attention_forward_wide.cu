// Attention in tiles, for heads of up to 256 elements.
#include "backend/cuda/attention_forward.h"

namespace tutti::backend::cuda {

std::vector<ForwardVariant> wide_forward_variants() {
    return {forward_variant<ForwardTile<128, 2, 4, 64, 2>>(), forward_variant<ForwardTile<128, 1, 4, 64, 3>>(),
            forward_variant<ForwardTile<192, 1, 4, 64, 2>>(), forward_variant<ForwardTile<256, 1, 4, 64, 2>>()};
}

} // namespace tutti::backend::cuda

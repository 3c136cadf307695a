// Packing and finishing with AVX-512, which both kinds of arithmetic share.
#pragma once

#include "backend/cpu/tiles/tiles.h"

namespace tutti::backend::cpu::tiles::avx512 {

void pack_left(const Source& source, BFloat16* packed);
void pack_right(const Source& source, BFloat16* packed);
void finish(const float* block, const Target& target);

} // namespace tutti::backend::cpu::tiles::avx512

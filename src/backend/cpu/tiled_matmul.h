// Matmuls of bf16 by our own tiles (tiles/tiles.h), split among threads.
#pragma once

#include "backend/cpu/onednn.h"
#include "backend/cpu/tiles/tiles.h"

namespace tutti::backend::cpu {

// Whether tiles compute it, and are worth it: both operands are bf16, and it is larger than a tile.
bool fits_tiles(const Matmul& matmul);
// The sums of an element are in the same order for any number of threads.
std::unique_ptr<Kernel> make_tiled(const Matmul& matmul, const tiles::Arithmetic& arithmetic);

} // namespace tutti::backend::cpu

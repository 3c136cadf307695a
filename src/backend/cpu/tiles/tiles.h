// Matmuls of bf16 in tiles, with float32 sums: how operands are packed, and the arithmetic of one block of the result,
// once for each kind of instruction. Functions take pointers and integers and run on one thread.
//
// A panel is 32 rows of the left operand, or 32 columns of the right one. It is packed step by step, 32 of the depth in
// each, as two tiles of 16 lines of 64 bytes, which is what a tile register holds:
//
//   left    tile t, line i:  a[16 t + i][k .. k + 31]
//   right   tile t, line p:  b[k + 2 p][16 t + j], b[k + 2 p + 1][16 t + j] for j = 0 .. 15: pairs along the depth
//
// What lies beyond the edges of the matrix is packed as zeros. So the product of two panels has no edges, and only
// `finish` knows of them.
#pragma once

#include "base/dtype.h"

#include <cstdint>

namespace tutti::backend::cpu::tiles {

constexpr std::int64_t panel = 32, step = 32; // rows or columns; depth
constexpr std::int64_t tile = 16 * 32;        // elements

constexpr std::int64_t steps_of(std::int64_t depth) { return (depth + step - 1) / step; }
constexpr std::int64_t packed_elements(std::int64_t depth) { return steps_of(depth) * 2 * tile; } // of a panel

// A panel as it lies in memory. Lines are rows of the left operand, or columns of the right one.
struct Source {
    const BFloat16* data;
    std::int64_t stride; // between lines or, across the depth, between steps of one along it
    bool along_depth;    // a line's elements follow each other; else, those of neighbouring lines
    std::int64_t lines, depth;
};

// Where the sums of a block go: out = block + partial + bias + out, of those that there are.
struct Target {
    std::int64_t rows, columns;
    void* out;
    std::int64_t out_stride;
    bool narrow;     // out is bf16, else float
    bool accumulate; // out is added to
    const float* partial;
    std::int64_t partial_stride;
    const BFloat16* bias; // of each column
};

struct Arithmetic {
    const char* name;
    void (*begin)(); // on each thread, around its work
    void (*end)();
    void (*pack_left)(const Source& source, BFloat16* packed);
    void (*pack_right)(const Source& source, BFloat16* packed);
    // block [panel, panel] = left right
    void (*multiply)(const BFloat16* left, const BFloat16* right, std::int64_t steps, float* block);
    void (*finish)(const float* block, const Target& target);
};

const Arithmetic& plain();       // loops; any CPU. To check the others against
const Arithmetic& avx512_bf16(); // vdpbf16ps
const Arithmetic& amx();         // tdpbf16ps

bool runs(const Arithmetic& arithmetic); // on this CPU and system
// The fastest that this CPU runs; null where it has none for bf16. TUTTI_SIMD=avx512_bf16 asks for a lesser one, and
// any other value of it for none.
const Arithmetic* best();

} // namespace tutti::backend::cpu::tiles

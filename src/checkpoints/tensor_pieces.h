// Model data moved to and from files in pieces of a few megabytes, so that no tensor is ever in memory twice. Files
// speak of whole tensors, a rank owns slices of them: a piece is consecutive elements of such a slice, and its runs say
// where these lie in the whole.
#pragma once

#include "offload/execution/model_data.h"

#include <cstdint>
#include <functional>
#include <span>

namespace tutti::checkpoints {

// Calls `use` with what this rank saves of a stored tensor, in order: the place in the whole tensor, and the bytes.
void for_each_saved(const offload::ModelData& data, Region region, std::int32_t stored,
                    const std::function<void(std::int64_t whole, std::span<const std::byte> bytes)>& use);
// The same of elements that are at hand: those of `slice` from `first` on.
void for_each_run(const sharding::TensorSlice& slice, std::int64_t first, std::span<const std::byte> bytes, DType dtype,
                  const std::function<void(std::int64_t whole, std::span<const std::byte> bytes)>& use);

// Makes a piece, dense and in the region's type; the runs tell all its elements. By any thread, and by several at once.
using MakePiece = std::function<void(std::span<const sharding::SliceRun> runs, std::span<std::byte> piece)>;
// Fills what this rank owns of a stored tensor.
void fill_owned(const offload::ModelData& data, Region region, std::int32_t stored, const MakePiece& make);
// Weights as the optimizer keeps them. Where these are a master copy, the weights that are computed with become the
// same, rounded; a rank may own more of them than of the master copy.
Region optimizer_weights(const offload::ModelData& data);
void fill_weights(const offload::ModelData& data, std::int32_t stored, const MakePiece& make);

// Fills a piece by `read`, which gives elements of the whole tensor from `first` on. Where runs are short and close to
// each other, what lies between them is read, too, and left out.
void read_runs(std::span<const sharding::SliceRun> runs, std::span<std::byte> piece, std::int64_t element_size,
               const std::function<void(std::int64_t first, std::span<std::byte> out)>& read);

} // namespace tutti::checkpoints

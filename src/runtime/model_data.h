// The chunks of a model on a device: weights, and for training gradients, master weights and moments; or what a rank
// holds of them. Stored tensors are those of the rank's graph; `tensor` says which part of which whole one each is.
#pragma once

#include "backend/device.h"
#include "memory/chunks.h"
#include "memory/holding.h"
#include "program/program.h"

#include <array>
#include <span>
#include <vector>

namespace tutti {

// All that a rank holds of the chunks of its program: what its ModelData takes. By default it holds all.
Bytes model_data_bytes(const Program& program, const Holding& holding = {});
Bytes held_bytes(const Program& program, const Holding& holding, Region region);

class ModelData {
  public:
    // In zeroed device memory of model_data_bytes(program, holding).
    ModelData(const Device& device, const Program& program, ChunkLayout layout, Holding holding, std::byte* memory);

    const ChunkLayout& layout() const { return layout_; }
    bool has(Region region) const { return present_[index(region)]; }
    DType dtype(Region region) const { return dtypes_[index(region)]; }
    // The memory of a chunk, from the first element that is held of it on; aligned as chunk entries are.
    std::byte* chunk(Region region, std::int32_t chunk) const;
    Range held_of_chunk(Region region, std::int32_t chunk) const;

    std::int32_t tensors() const { return static_cast<std::int32_t>(holding_.tensors.size()); }
    const HeldTensor& tensor(std::int32_t stored) const { return holding_.tensors[static_cast<std::size_t>(stored)]; }
    // Which elements of a stored tensor are here, and which of these are this rank's to save. May be none.
    Range held(Region region, std::int32_t stored) const;
    Range saved(Region region, std::int32_t stored) const;

    // Held elements of a stored tensor from `first` on, as many as the bytes hold: dense, in the checkpoint's order.
    void read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const;
    void write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const;

  private:
    static std::size_t index(Region region) { return static_cast<std::size_t>(region); }
    // Where a stored tensor lies in its chunk.
    Range in_chunk(std::int32_t stored) const;
    std::byte* address(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const;

    const Device* device_;
    ChunkLayout layout_;
    Holding holding_;
    std::array<DType, chunk_region_count> dtypes_{};
    std::array<bool, chunk_region_count> present_{};
    std::array<std::vector<std::byte*>, chunk_region_count> chunks_{}; // per region
    std::vector<std::int64_t> elements_;                               // per stored tensor
};

} // namespace tutti

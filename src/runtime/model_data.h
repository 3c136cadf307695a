// The chunks of a model on a device: weights, and for training gradients, master weights and moments.
#pragma once

#include "backend/device.h"
#include "memory/chunks.h"
#include "program/program.h"

#include <array>
#include <functional>
#include <memory>
#include <span>

namespace tutti {

// All chunks of a program: what its ModelData takes.
Bytes model_data_bytes(const Program& program);

class ModelData {
  public:
    // In zeroed device memory of model_data_bytes(program).
    ModelData(const Device& device, const Program& program, ChunkLayout layout, std::byte* memory);

    const ChunkLayout& layout() const { return layout_; }
    bool has(Region region) const { return regions_[static_cast<std::size_t>(region)] != nullptr; }
    DType dtype(Region region) const { return dtypes_[static_cast<std::size_t>(region)]; }
    std::byte* chunk(Region region, std::int32_t chunk) const;

    // Elements of a stored tensor from `first` on, as many as the bytes hold: dense, in the checkpoint's order.
    void read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const;
    void write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const;
    std::int64_t elements(std::int32_t stored) const;

  private:
    std::byte* tensor(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const;

    const Device* device_;
    ChunkLayout layout_;
    std::array<DType, 5> dtypes_{};
    std::array<std::byte*, 5> regions_{};
    std::vector<std::int64_t> first_; // of each chunk, in elements
};

} // namespace tutti

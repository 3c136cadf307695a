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

class ModelData {
  public:
    // Allocates, zeroed, what the program says; WorldError where there is no room.
    ModelData(const Device& device, const Program& program, ChunkLayout layout);

    const ChunkLayout& layout() const { return layout_; }
    bool has(Region region) const { return arenas_[static_cast<std::size_t>(region)] != nullptr; }
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
    std::array<std::unique_ptr<Arena>, 5> arenas_;
    std::vector<std::int64_t> first_; // of each chunk, in elements
};

} // namespace tutti

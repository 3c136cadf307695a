// The chunks of a model on a device: weights, and for training gradients, master weights and moments; or what a rank
// owns of them. Stored tensors are those of the rank's graph; `tensor` says which slice of which whole tensor each
// of them is.
//
// Where the device is too small for them, chunks have a backing place (offload/execution/backing_store.h) and are on
// the device only during their residency intervals; a Residence says at which address. The same goes for offloaded
// activations.
#pragma once

#include "backend/device.h"
#include "memory/owned_model.h"
#include "offload/execution/backing_store.h"
#include "offload/time_points.h"
#include "program/program.h"

#include <array>
#include <span>
#include <vector>

namespace tutti::offload {

// All that a rank owns of the chunks of its program: what its ModelData takes.
Bytes model_data_bytes(const Program& program);

class Residence;

class ModelData {
  public:
    // In zeroed device memory of model_data_bytes(program).
    ModelData(const backend::Device& device, const Program& program, const memory::OwnedModel& owned,
              std::byte* memory);
    // Chunks in their backing places.
    ModelData(const backend::Device& device, const Program& program, const memory::OwnedModel& owned,
              const BackingStore& backing);

    const memory::ChunkLayout& layout() const { return owned_.layout; }
    bool has(Region region) const { return present_[index(region)]; }
    DType dtype(Region region) const { return dtypes_[index(region)]; }
    // The memory of a chunk, from the first element that is owned of it on; aligned as chunk entries are. It has to be
    // on the device.
    std::byte* chunk(Region region, std::int32_t chunk) const;
    // Where a chunk lies on the device from now on; null: it is not on the device.
    void set_place(const ChunkResident& resident, std::byte* memory);
    // From now on this Residence says where chunks lie. The previous one evicts all of its chunks first.
    void take(Residence& residence);
    Range owned_of_chunk(Region region, std::int32_t chunk) const;

    std::int32_t tensors() const { return static_cast<std::int32_t>(owned_.tensors.size()); }
    const memory::OwnedTensor& tensor(std::int32_t stored) const {
        return owned_.tensors[static_cast<std::size_t>(stored)];
    }
    // Which elements of a stored tensor are here, and which of these are this rank's to save. May be none.
    Range owned(Region region, std::int32_t stored) const;
    Range saved(Region region, std::int32_t stored) const;

    // Owned elements of a stored tensor from `first` on, as many as the bytes hold: dense, in the checkpoint's order.
    void read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const;
    void write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const;

  private:
    static std::size_t index(Region region) { return static_cast<std::size_t>(region); }
    // Of elements of a stored tensor, in what is owned of its chunk.
    Address address(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const;
    void set_up(const Program& program);
    void clear_gaps(Region region) const;

    const backend::Device* device_;
    memory::OwnedModel owned_;
    std::array<std::vector<Range>, memory::chunk_region_count> ranges_{}; // per region and chunk: what is owned of it
    std::array<DType, memory::chunk_region_count> dtypes_{};
    std::array<bool, memory::chunk_region_count> present_{};
    std::array<std::vector<std::byte*>, memory::chunk_region_count> chunks_{}; // per region; null: not on the device
    std::vector<std::byte*> pieces_;        // of activations that are offloaded, likewise
    const BackingStore* backing_ = nullptr; // null: everything is always on the device
    Residence* residence_ = nullptr;
};

} // namespace tutti::offload

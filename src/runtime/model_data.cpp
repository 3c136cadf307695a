#include "runtime/model_data.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"

namespace tutti {

namespace {

constexpr int chunk_regions = 5;

// Each list of chunks starts where buffers may.
Bytes padded(const Program& program, int region) {
    return {round_up(chunk_bytes(program, static_cast<Region>(region)).count, buffer_alignment)};
}

} // namespace

Bytes model_data_bytes(const Program& program) {
    Bytes total;
    for (int region = 0; region < chunk_regions; ++region) total += padded(program, region);
    return total;
}

ModelData::ModelData(const Device& device, const Program& program, ChunkLayout layout, std::byte* memory)
    : device_(&device), layout_(std::move(layout)), dtypes_(program.chunk_dtypes) {
    std::int64_t first = 0;
    for (const Chunk& chunk : layout_.chunks) {
        first_.push_back(first);
        first += chunk.elements;
    }
    for (int region = 0; region < chunk_regions; ++region) {
        const Bytes size = padded(program, region);
        if (size.count > 0) regions_[static_cast<std::size_t>(region)] = memory;
        memory += size.count;
    }
}

std::byte* ModelData::chunk(Region region, std::int32_t chunk) const {
    const auto r = static_cast<std::size_t>(region);
    TUTTI_CHECK(regions_[r] != nullptr, "{} is not held", name_of(region));
    return regions_[r] + first_[static_cast<std::size_t>(chunk)] * size_of(dtypes_[r]);
}

std::int64_t ModelData::elements(std::int32_t stored) const {
    const ChunkPlace& place = layout_.places[static_cast<std::size_t>(stored)];
    for (const ChunkEntry& entry : layout_.chunks[static_cast<std::size_t>(place.chunk)].entries)
        if (entry.stored == stored) return entry.count;
    return 0;
}

std::byte* ModelData::tensor(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const {
    const ChunkPlace& place = layout_.places[static_cast<std::size_t>(stored)];
    const std::int64_t element = size_of(dtype(region)), count = static_cast<std::int64_t>(bytes) / element;
    TUTTI_CHECK(first >= 0 && first + count <= elements(stored), "elements {} to {} of {}", first, first + count,
                elements(stored));
    return chunk(region, place.chunk) + (place.offset + first) * element;
}

void ModelData::read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const {
    device_->copy_out(out, tensor(region, stored, first, out.size()));
}

void ModelData::write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const {
    device_->copy_in(tensor(region, stored, first, in.size()), in);
}

} // namespace tutti

#include "offload/execution/model_data.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"
#include "offload/execution/residence.h"

#include <algorithm>

namespace tutti::offload {
namespace {

// What is owned of a chunk takes whole alignment units, so that the next one is aligned, too.
std::int64_t owned_elements(const Program& program, Region region, std::size_t chunk) {
    return round_up(program.owned_of(region, narrow<std::int32_t>(chunk)).size(), memory::chunk_alignment);
}

// Each list of chunks starts where buffers may.
Bytes padded(Bytes bytes) { return {round_up(bytes.count, memory::buffer_alignment)}; }

Range overlap(Range a, Range b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

Bytes owned_bytes(const Program& program, Region region) {
    if (!has_chunks(program, region)) return {};
    std::int64_t elements = 0;
    for (std::size_t chunk = 0; chunk < program.chunk_elements.size(); ++chunk)
        elements += owned_elements(program, region, chunk);
    return {elements * size_of(program.chunk_dtypes[static_cast<std::size_t>(region)])};
}

} // namespace

Bytes model_data_bytes(const Program& program) {
    Bytes total;
    for (std::size_t region = 0; region < memory::chunk_region_count; ++region)
        total += padded(owned_bytes(program, static_cast<Region>(region)));
    return total;
}

ModelData::ModelData(const backend::Device& device, const Program& program, const memory::OwnedModel& owned,
                     std::byte* memory)
    : device_(&device), owned_(owned), dtypes_(program.chunk_dtypes) {
    set_up(program);
    for (std::size_t r = 0; r < memory::chunk_region_count; ++r) {
        if (!present_[r]) continue;
        const auto region = static_cast<Region>(r);
        std::byte* next = memory;
        for (std::size_t chunk = 0; chunk < program.chunk_elements.size(); ++chunk) {
            chunks_[r][chunk] = next;
            next += owned_elements(program, region, chunk) * size_of(dtypes_[r]);
        }
        memory += padded(owned_bytes(program, region)).count;
    }
}

ModelData::ModelData(const backend::Device& device, const Program& program, const memory::OwnedModel& owned,
                     const BackingStore& backing)
    : device_(&device), owned_(owned), dtypes_(program.chunk_dtypes), backing_(&backing) {
    set_up(program);
    for (const ChunkResident& resident : backing.plan().residents)
        if (const BackingPlace& place = *backing.find(resident); place.tier == BackingTier::device)
            set_place(resident, backing.memory(place));
    clear_gaps(Region::weights); // gradients that lie there are squared and summed chunk by chunk
}

// Writes zeros to the gaps between tensors in the backing places.
void ModelData::clear_gaps(Region region) const {
    const memory::ChunkLayout& layout = owned_.layout;
    for (std::size_t c = 0; c < layout.chunks.size(); ++c) {
        const auto number = narrow<std::int32_t>(c);
        const BackingPlace* place = backing_->find({region, number});
        if (place == nullptr || place->tier == BackingTier::device) continue;
        const Range owned = owned_of_chunk(region, number);
        auto clear = [&](std::int64_t begin, std::int64_t end) {
            const Range gap = overlap({begin, end}, owned);
            const std::vector<std::byte> zeros(static_cast<std::size_t>(gap.size() * size_of(dtype(region))));
            if (!zeros.empty()) backing_->write(*place, (gap.begin - owned.begin) * size_of(dtype(region)), zeros);
        };
        std::int64_t behind = 0;
        for (std::int32_t stored : layout.chunks[c].tensors) {
            clear(behind, layout.tensor(stored).range().begin);
            behind = layout.tensor(stored).range().end;
        }
        clear(behind, layout.chunks[c].elements);
    }
}

void ModelData::set_up(const Program& program) {
    const memory::ChunkLayout& layout = owned_.layout;
    TUTTI_CHECK(owned_.tensors.size() == layout.tensors.size(), "{} tensors in a layout of {}", owned_.tensors.size(),
                layout.tensors.size());
    TUTTI_CHECK(owned_.saved.size() == layout.chunks.size(), "{} saved ranges of {} chunks", owned_.saved.size(),
                layout.chunks.size());
    for (std::int32_t stored = 0; stored < tensors(); ++stored)
        TUTTI_CHECK(tensor(stored).slice.elements() == layout.tensor(stored).elements,
                    "{}: {} elements are owned of it, and {} laid out", tensor(stored).name,
                    tensor(stored).slice.elements(), layout.tensor(stored).elements);
    auto check = [&](Range range, std::size_t chunk) {
        TUTTI_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= layout.chunks[chunk].elements,
                    "elements {} to {} of chunk {}, which has {}", range.begin, range.end, chunk,
                    layout.chunks[chunk].elements);
    };
    for (std::size_t r = 0; r < memory::chunk_region_count; ++r) {
        const auto region = static_cast<Region>(r);
        present_[r] = has_chunks(program, region);
        if (present_[r]) chunks_[r].resize(program.chunk_elements.size());
        for (std::size_t chunk = 0; chunk < layout.chunks.size(); ++chunk) {
            ranges_[r].push_back(program.owned_of(region, narrow<std::int32_t>(chunk)));
            check(ranges_[r].back(), chunk);
            check(owned_.saved[chunk], chunk);
        }
    }
}

void ModelData::set_place(const ChunkResident& resident, std::byte* memory) {
    std::vector<std::byte*>& places = resident.region == Region::offloaded ? pieces_ : chunks_[index(resident.region)];
    const auto number = static_cast<std::size_t>(resident.chunk);
    if (resident.region == Region::offloaded && number >= places.size()) places.resize(number + 1);
    places[number] = memory;
}

void ModelData::take(Residence& residence) {
    if (residence_ == &residence) return;
    if (residence_ != nullptr) residence_->evict_all();
    residence_ = &residence;
}

std::byte* ModelData::chunk(Region region, std::int32_t chunk) const {
    const bool is_piece = region == Region::offloaded;
    TUTTI_CHECK(is_piece ? static_cast<std::size_t>(chunk) < pieces_.size() : has(region), "there is no {}",
                name_of(region));
    std::byte* const memory = (is_piece ? pieces_ : chunks_[index(region)])[static_cast<std::size_t>(chunk)];
    TUTTI_CHECK(memory != nullptr, "chunk {} of {} is not on the device", chunk, name_of(region));
    return memory;
}

Range ModelData::owned_of_chunk(Region region, std::int32_t chunk) const {
    return ranges_[index(region)][static_cast<std::size_t>(chunk)];
}

Range ModelData::owned(Region region, std::int32_t stored) const {
    const memory::ChunkTensor& tensor = owned_.layout.tensor(stored);
    const Range here = overlap(tensor.range(), owned_of_chunk(region, tensor.chunk));
    return here.size() > 0 ? Range{here.begin - tensor.offset, here.end - tensor.offset} : Range{};
}

Range ModelData::saved(Region region, std::int32_t stored) const {
    const memory::ChunkTensor& tensor = owned_.layout.tensor(stored);
    const Range ours = owned_.saved[static_cast<std::size_t>(tensor.chunk)];
    const Range result = overlap(owned(region, stored), {ours.begin - tensor.offset, ours.end - tensor.offset});
    return result.size() > 0 ? result : Range{};
}

Address ModelData::address(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const {
    TUTTI_CHECK(has(region), "there is no {}", name_of(region));
    const memory::ChunkTensor& place = owned_.layout.tensor(stored);
    const std::int64_t element = size_of(dtype(region)), count = static_cast<std::int64_t>(bytes) / element;
    const Range here = owned(region, stored);
    TUTTI_CHECK(first >= here.begin && first + count <= here.end,
                "elements {} to {} of {}, of which {} to {} are owned", first, first + count, tensor(stored).name,
                here.begin, here.end);
    return {region, place.chunk, (place.offset + first - owned_of_chunk(region, place.chunk).begin) * element};
}

void ModelData::read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const {
    const Address from = address(region, stored, first, out.size());
    if (residence_ != nullptr) residence_->wait_for_copies();
    if (const std::byte* here = chunks_[index(region)][static_cast<std::size_t>(from.chunk)])
        device_->copy_out(out, here + from.offset);
    else
        backing_->read(*backing_->find({region, from.chunk}), from.offset, out);
}

void ModelData::write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const {
    const Address to = address(region, stored, first, in.size());
    if (residence_ != nullptr) residence_->wait_for_copies();
    if (std::byte* here = chunks_[index(region)][static_cast<std::size_t>(to.chunk)])
        device_->copy_in(here + to.offset, in);
    else
        backing_->write(*backing_->find({region, to.chunk}), to.offset, in);
}

} // namespace tutti::offload

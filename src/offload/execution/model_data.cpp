#include "offload/execution/model_data.h"

#include "base/checked.h"
#include "base/error.h"
#include "memory/liveness.h"
#include "offload/execution/residence.h"

#include <algorithm>

namespace tutti::offload {
namespace {

// What is held of a chunk takes whole alignment units, so that the next one is aligned, too.
std::int64_t held_elements(const Program& program, const memory::Holding& holding, Region region, std::size_t chunk) {
    const memory::Holding::ChunkRanges& ranges = holding.held[static_cast<std::size_t>(region)];
    return round_up(memory::range_of(ranges, chunk, program.chunk_elements[chunk]).size(), memory::chunk_alignment);
}

// Each list of chunks starts where buffers may.
Bytes padded(Bytes bytes) { return {round_up(bytes.count, memory::buffer_alignment)}; }

Range overlap(Range a, Range b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

} // namespace

Bytes held_bytes(const Program& program, const memory::Holding& holding, Region region) {
    if (!has_chunks(program, region)) return {};
    std::int64_t elements = 0;
    for (std::size_t chunk = 0; chunk < program.chunk_elements.size(); ++chunk)
        elements += held_elements(program, holding, region, chunk);
    return {elements * size_of(program.chunk_dtypes[static_cast<std::size_t>(region)])};
}

Bytes model_data_bytes(const Program& program, const memory::Holding& holding) {
    Bytes total;
    for (std::size_t region = 0; region < memory::chunk_region_count; ++region)
        total += padded(held_bytes(program, holding, static_cast<Region>(region)));
    return total;
}

ModelData::ModelData(const backend::Device& device, const Program& program, memory::ChunkLayout layout,
                     memory::Holding holding, std::byte* memory)
    : device_(&device), layout_(std::move(layout)), holding_(std::move(holding)), dtypes_(program.chunk_dtypes) {
    set_up(program);
    for (std::size_t r = 0; r < memory::chunk_region_count; ++r) {
        if (!present_[r]) continue;
        const auto region = static_cast<Region>(r);
        std::byte* next = memory;
        for (std::size_t chunk = 0; chunk < program.chunk_elements.size(); ++chunk) {
            chunks_[r][chunk] = next;
            next += held_elements(program, holding_, region, chunk) * size_of(dtypes_[r]);
        }
        memory += padded(held_bytes(program, holding_, region)).count;
    }
}

ModelData::ModelData(const backend::Device& device, const Program& program, memory::ChunkLayout layout,
                     memory::Holding holding, const Homes& homes)
    : device_(&device), layout_(std::move(layout)), holding_(std::move(holding)), dtypes_(program.chunk_dtypes),
      homes_(&homes) {
    set_up(program);
    for (const ChunkResident& resident : homes.plan().residents)
        if (const Home& home = *homes.find(resident); home.tier == HomeTier::device)
            set_place(resident, homes.memory(home));
    clear_gaps(Region::weights); // gradients that lie there are squared and summed chunk by chunk
}

// Zeros where no tensor lies, at home.
void ModelData::clear_gaps(Region region) const {
    for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
        const auto number = narrow<std::int32_t>(c);
        const Home* home = homes_->find({region, number});
        if (home == nullptr || home->tier == HomeTier::device) continue;
        const Range held = held_of_chunk(region, number);
        auto clear = [&](std::int64_t begin, std::int64_t end) {
            const Range gap = overlap({begin, end}, held);
            const std::vector<std::byte> zeros(static_cast<std::size_t>(gap.size() * size_of(dtype(region))));
            if (!zeros.empty()) homes_->write(*home, (gap.begin - held.begin) * size_of(dtype(region)), zeros);
        };
        std::int64_t behind = 0;
        for (const memory::ChunkEntry& entry : layout_.chunks[c].entries) {
            clear(behind, entry.offset);
            behind = entry.offset + entry.count;
        }
        clear(behind, layout_.chunks[c].elements);
    }
}

void ModelData::set_up(const Program& program) {
    TUTTI_CHECK(holding_.tensors.size() == layout_.places.size(), "{} held tensors in a layout of {}",
                holding_.tensors.size(), layout_.places.size());
    elements_.resize(layout_.places.size());
    for (const memory::Chunk& chunk : layout_.chunks)
        for (const memory::ChunkEntry& entry : chunk.entries) {
            const memory::HeldTensor& held = tensor(entry.stored);
            TUTTI_CHECK(held.slice.elements() == entry.count, "{}: {} elements are held of it, and {} laid out",
                        held.name, held.slice.elements(), entry.count);
            elements_[static_cast<std::size_t>(entry.stored)] = entry.count;
        }
    for (std::size_t r = 0; r < memory::chunk_region_count; ++r) {
        present_[r] = has_chunks(program, static_cast<Region>(r));
        if (present_[r]) chunks_[r].resize(program.chunk_elements.size());
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
    if (residence_ != nullptr) residence_->leave();
    residence_ = &residence;
}

std::byte* ModelData::chunk(Region region, std::int32_t chunk) const {
    const bool is_piece = region == Region::offloaded;
    TUTTI_CHECK(is_piece ? static_cast<std::size_t>(chunk) < pieces_.size() : has(region), "{} is not held",
                name_of(region));
    std::byte* const memory = (is_piece ? pieces_ : chunks_[index(region)])[static_cast<std::size_t>(chunk)];
    TUTTI_CHECK(memory != nullptr, "chunk {} of {} is not on the device", chunk, name_of(region));
    return memory;
}

Range ModelData::held_of_chunk(Region region, std::int32_t chunk) const {
    const auto number = static_cast<std::size_t>(chunk);
    return memory::range_of(holding_.held[index(region)], number, layout_.chunks[number].elements);
}

Range ModelData::in_chunk(std::int32_t stored) const {
    const std::int64_t offset = layout_.places[static_cast<std::size_t>(stored)].offset;
    return {offset, offset + elements_[static_cast<std::size_t>(stored)]};
}

Range ModelData::held(Region region, std::int32_t stored) const {
    const Range all = in_chunk(stored);
    const Range here = overlap(all, held_of_chunk(region, layout_.places[static_cast<std::size_t>(stored)].chunk));
    return here.size() > 0 ? Range{here.begin - all.begin, here.end - all.begin} : Range{};
}

Range ModelData::saved(Region region, std::int32_t stored) const {
    if (!tensor(stored).saved[index(region)]) return {};
    const auto chunk = static_cast<std::size_t>(layout_.places[static_cast<std::size_t>(stored)].chunk);
    const Range ours = memory::range_of(holding_.saved[index(region)], chunk, layout_.chunks[chunk].elements);
    const std::int64_t offset = in_chunk(stored).begin;
    const Range result = overlap(held(region, stored), {ours.begin - offset, ours.end - offset});
    return result.size() > 0 ? result : Range{};
}

ModelData::Place ModelData::place(Region region, std::int32_t stored, std::int64_t first, std::size_t bytes) const {
    TUTTI_CHECK(has(region), "{} is not held", name_of(region));
    const memory::ChunkPlace& place = layout_.places[static_cast<std::size_t>(stored)];
    const std::int64_t element = size_of(dtype(region)), count = static_cast<std::int64_t>(bytes) / element;
    const Range here = held(region, stored);
    TUTTI_CHECK(first >= here.begin && first + count <= here.end, "elements {} to {} of {}, of which {} to {} are held",
                first, first + count, tensor(stored).name, here.begin, here.end);
    return {{region, place.chunk}, (place.offset + first - held_of_chunk(region, place.chunk).begin) * element};
}

void ModelData::read(Region region, std::int32_t stored, std::int64_t first, std::span<std::byte> out) const {
    const Place from = place(region, stored, first, out.size());
    if (residence_ != nullptr) residence_->wait_for_copies();
    if (const std::byte* here = chunks_[index(region)][static_cast<std::size_t>(from.chunk.chunk)])
        device_->copy_out(out, here + from.offset);
    else
        homes_->read(*homes_->find(from.chunk), from.offset, out);
}

void ModelData::write(Region region, std::int32_t stored, std::int64_t first, std::span<const std::byte> in) const {
    const Place to = place(region, stored, first, in.size());
    if (residence_ != nullptr) residence_->wait_for_copies();
    if (std::byte* here = chunks_[index(region)][static_cast<std::size_t>(to.chunk.chunk)])
        device_->copy_in(here + to.offset, in);
    else
        homes_->write(*homes_->find(to.chunk), to.offset, in);
}

} // namespace tutti::offload

// A small model's data as a rank of some mesh owns it, without graph or program code: for tests of what moves it to
// and from files.
#pragma once

#include "backend/reference/reference.h"
#include "base/checked.h"
#include "offload/execution/model_data.h"
#include "sharding/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tutti::test {

struct Precisions {
    DType weights = DType::float32, gradients = DType::float32, master = DType::float32, moments = DType::float32;
    bool has_master() const { return size_of(weights) < size_of(master); }
};

// How the tensor axis splits a tensor.
enum class Split { none, rows, columns, heads /* of three matrices that lie in one, side by side */ };

struct ModelTensor {
    std::string name;
    Shape shape;
    Split split = Split::none;
    bool tied = false; // the first and the last stage have it
};

struct RankPlan {
    sharding::Mesh mesh{};
    int zero = 0;
    Precisions precisions{};
    std::int64_t chunk_elements = 512;
};

inline std::vector<StoredTensor> stored_of(std::span<const ModelTensor> model) {
    std::vector<StoredTensor> stored;
    for (const ModelTensor& tensor : model) stored.push_back({tensor.name, {DType::float32, tensor.shape}});
    return stored;
}

inline sharding::TensorSlice slice_of(const ModelTensor& tensor, int rank, int ranks) {
    sharding::TensorSlice slice = sharding::TensorSlice::all_of(tensor.shape);
    const int last = tensor.shape.rank() - 1;
    auto part = [&](std::int64_t size) { return even_parts(size, 1, ranks)[static_cast<std::size_t>(rank)]; };
    if (tensor.split == Split::rows) slice.dims.front() = part(tensor.shape[0]);
    if (tensor.split == Split::columns) slice.dims.back() = part(tensor.shape[last]);
    if (tensor.split == Split::heads) {
        const std::int64_t each = divide_exactly(tensor.shape[last], 3);
        Ranges columns;
        for (int k = 0; k < 3; ++k) columns = joined(columns, shifted(part(each), k * each));
        slice.dims.back() = columns;
    }
    return slice;
}

// Tensors go to the stages in equal runs; chunks take them in order, those that another rank saves apart from the rest.
// ZeRO shards chunks in whole alignment units over the data axis, so that shares are uneven and may be empty.
class RankModel {
  public:
    RankModel(std::span<const ModelTensor> model, const RankPlan& plan, int rank)
        : device_(backend::reference::make_reference_device()) {
        const sharding::MeshPlace place = plan.mesh.place_of(rank);
        memory::OwnedModel owned;
        std::vector<bool> saves; // per chunk
        for (std::size_t i = 0; i < model.size(); ++i) {
            const int stage = static_cast<int>(i * static_cast<std::size_t>(plan.mesh.pipe) / model.size());
            const bool tied = model[i].tied && place.pipe == plan.mesh.pipe - 1 && stage != place.pipe;
            if (stage != place.pipe && !tied) continue;
            owned.tensors.push_back({model[i].name, slice_of(model[i], place.tensor, plan.mesh.tensor)});
            const bool split = plan.mesh.tensor > 1 && model[i].split != Split::none;
            const bool saved = (split || place.tensor == 0) && !tied && (plan.zero > 0 || place.data == 0);
            if (!saves.empty() && saves.back() != saved) owned.layout.chunks.emplace_back();
            add(owned.layout, owned.tensors.back().slice.elements(), plan.chunk_elements);
            saves.resize(owned.layout.chunks.size(), saved);
        }
        constexpr std::array<int, memory::chunk_region_count> sharded_from = {3, 2, 1, 1, 1};
        for (std::size_t c = 0; c < owned.layout.chunks.size(); ++c) {
            const memory::Chunk& chunk = owned.layout.chunks[c];
            program_.chunk_elements.push_back(chunk.elements);
            const Ranges parts = even_parts(chunk.elements / memory::chunk_alignment, memory::chunk_alignment,
                                            plan.mesh.data)[static_cast<std::size_t>(place.data)];
            const Range whole{0, chunk.elements}, share = parts.empty() ? Range{} : parts[0];
            for (std::size_t r = 0; r < memory::chunk_region_count; ++r)
                program_.owned[r].push_back(plan.zero >= sharded_from[r] ? share : whole);
            owned.saved.push_back(!saves[c] ? Range{} : plan.zero > 0 ? share : whole);
        }
        const Precisions& types = plan.precisions;
        program_.chunk_dtypes = {types.weights, types.gradients, types.master, types.moments, types.moments};
        program_.has_master = types.has_master();
        program_.trains = true;
        memory_ = device_->allocate(offload::model_data_bytes(program_));
        data_.emplace(*device_, program_, owned, memory_->data());
    }

    const offload::ModelData& data() const { return *data_; }

  private:
    static void add(memory::ChunkLayout& layout, std::int64_t elements, std::int64_t capacity) {
        const std::int64_t room = round_up(elements, memory::chunk_alignment);
        if (layout.chunks.empty() ||
            (layout.chunks.back().elements > 0 && layout.chunks.back().elements + room > capacity))
            layout.chunks.emplace_back();
        memory::Chunk& chunk = layout.chunks.back();
        chunk.tensors.push_back(static_cast<std::int32_t>(layout.tensors.size()));
        layout.tensors.push_back({.elements = elements,
                                  .chunk = static_cast<std::int32_t>(layout.chunks.size() - 1),
                                  .offset = chunk.elements});
        chunk.elements += room;
    }

    std::unique_ptr<backend::Device> device_;
    Program program_;
    std::unique_ptr<backend::Arena> memory_;
    std::optional<offload::ModelData> data_;
};

// A value of its own for every element of every tensor, exact in float32.
inline float value_of(Region region, std::string_view name, std::int64_t element) {
    std::uint32_t hash = static_cast<std::uint32_t>(region) * 7919u + 1u;
    for (char letter : name) hash = hash * 31u + static_cast<unsigned char>(letter);
    hash = (hash ^ static_cast<std::uint32_t>(element)) * 2654435761u;
    return static_cast<float>(hash >> 8) * 0x1p-20f - 7.5f;
}

// The value of every element that a rank owns of a stored tensor.
inline std::vector<float> values_of(const offload::ModelData& data, Region region, std::int32_t stored, Region like) {
    const Range owned = data.owned(region, stored);
    const memory::OwnedTensor& tensor = data.tensor(stored);
    std::vector<float> values;
    for (const sharding::SliceRun& run : tensor.slice.runs(owned))
        for (std::int64_t i = run.whole; i < run.whole + run.count; ++i)
            values.push_back(value_of(like, tensor.name, i));
    return values;
}

inline std::vector<std::byte> in_type(DType dtype, const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const BFloat16 narrow(values[i]);
        if (dtype == DType::bfloat16)
            std::memcpy(bytes.data() + 2 * i, &narrow, 2);
        else
            std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
    return bytes;
}

// Fills what is owned of a region with the values of `like`. What the rank does not save becomes garbage, as it is on a
// rank that has not heard of the others' updates.
inline void fill_values(const offload::ModelData& data, Region region, Region like) {
    for (std::int32_t stored = 0; stored < data.tensors(); ++stored) {
        std::vector<float> values = values_of(data, region, stored, like);
        const Range owned = data.owned(region, stored), saved = data.saved(region, stored);
        for (std::int64_t i = owned.begin; i < owned.end; ++i)
            if (i < saved.begin || i >= saved.end) values[static_cast<std::size_t>(i - owned.begin)] = -1e30f;
        if (!values.empty()) data.write(region, stored, owned.begin, in_type(data.dtype(region), values));
    }
}

// Whether all that is owned of a region, saved or not, has the values of `like`; in words where not.
inline std::string difference(const offload::ModelData& data, Region region, Region like) {
    for (std::int32_t stored = 0; stored < data.tensors(); ++stored) {
        const std::vector<std::byte> expected = in_type(data.dtype(region), values_of(data, region, stored, like));
        std::vector<std::byte> found(expected.size());
        if (!found.empty()) data.read(region, stored, data.owned(region, stored).begin, found);
        if (found != expected) return fmt::format("{} of {}", name_of(region), data.tensor(stored).name);
    }
    return {};
}

} // namespace tutti::test

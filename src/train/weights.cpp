#include "train/weights.h"

#include "base/error.h"
#include "formats/safetensors.h"
#include "models/checkpoint.h"
#include "train/run_folder.h"
#include "train/tensor_pieces.h"

#include <algorithm>

namespace tutti {
namespace {

// Every value is a function of its place alone, so threads may share the work as they like.
void initialise_by_threads(const Initialisation& how, std::uint64_t seed, std::string_view name, std::int64_t first,
                           std::span<float> out) {
    constexpr std::int64_t slice = std::int64_t{1} << 15;
    const auto count = static_cast<std::int64_t>(out.size());
#pragma omp parallel for schedule(static) if (count > slice)
    for (std::int64_t begin = 0; begin < count; begin += slice)
        initialise(
            how, seed, name, first + begin,
            out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(slice, count - begin))));
}

} // namespace

void load_weights(const ModelSource& source, std::span<const StoredTensor> stored,
                  std::span<const Initialisation> initialisation, std::uint64_t seed, const ModelData& data) {
    const Region region = data.has(Region::master) ? Region::master : Region::weights;
    const DType dtype = data.dtype(region);
    if (source.folder().empty()) {
        std::vector<float> values;
        for (std::size_t i = 0; i < stored.size(); ++i)
            fill_pieces(data, region, static_cast<std::int32_t>(i),
                        [&](std::int64_t first, std::span<std::byte> bytes) {
                            values.resize(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
                            initialise_by_threads(initialisation[i], seed, stored[i].name, first, values);
                            convert_elements(DType::float32, std::as_bytes(std::span(values)), dtype, bytes);
                        });
    } else {
        const TensorStore store(source.folder());
        for (std::size_t i = 0; i < stored.size(); ++i) {
            const std::string name = checkpoint_name(source, store, stored[i].name);
            fill_pieces(data, region, static_cast<std::int32_t>(i),
                        [&](std::int64_t first, std::span<std::byte> bytes) {
                            store.read_range_converted(name, static_cast<std::uint64_t>(first), dtype, bytes);
                        });
        }
    }
    if (data.has(Region::master)) round_master(data, stored.size());
}

namespace {

void write_model(const ModelSource& source, std::span<const StoredTensor> stored, const ModelData& data,
                 const fs::path& folder) {
    const DType dtype = data.dtype(Region::weights);
    copy_model_files(source, folder, dtype);
    std::vector<TensorSpec> specs;
    for (const StoredTensor& tensor : stored) specs.push_back({tensor.name, dtype, tensor.type.shape});
    SafetensorsWriter writer(folder / "model.safetensors", specs, {{"format", "pt"}});
    for (std::size_t i = 0; i < stored.size(); ++i)
        for_each_piece(data, Region::weights, static_cast<std::int32_t>(i),
                       [&](std::int64_t, std::span<const std::byte> bytes) { writer.append(bytes); });
    writer.finish();
    sync_folder(folder);
}

} // namespace

fs::path save_model(const ModelSource& source, std::span<const StoredTensor> stored, const ModelData& data,
                    const fs::path& folder) {
    fs::path temporary = folder;
    temporary += ".tmp";
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    make_folders(temporary);
    try {
        write_model(source, stored, data, temporary);
    } catch (...) {
        fs::remove_all(temporary, ignored);
        throw;
    }
    const fs::path previous = set_aside(folder);
    rename_durably(temporary, folder);
    return previous;
}

} // namespace tutti

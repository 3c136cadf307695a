#include "checkpoints/weights.h"

#include "base/error.h"
#include "checkpoints/tensor_pieces.h"
#include "checkpoints/whole_tensors.h"
#include "comm/agree.h"
#include "formats/json.h"
#include "formats/tensor_store.h"
#include "models/checkpoint.h"
#include "run/run_folder.h"

#include <atomic>
#include <cmath>

namespace tutti::checkpoints {

namespace {

// As in "[3,17]".
std::string place_in(const Shape& shape, std::int64_t element) {
    Shape place = shape;
    for (int dim = shape.rank(); dim-- > 0; element /= shape[dim]) place[dim] = element % shape[dim];
    return to_string(place);
}

[[noreturn]] void fail_not_finite(const formats::TensorStore& store, const std::string& name, std::int64_t element,
                                  DType dtype) {
    double value = 0;
    store.read_range_converted(name, static_cast<std::uint64_t>(element), DType::float64,
                               std::as_writable_bytes(std::span(&value, 1)));
    fail("the tensor {} in {} holds {} at {}, which is not finite{}: the weights are damaged, or training diverged",
         formats::in_quotes(name), store.folder().string(), std::isnan(value) ? std::fabs(value) : value,
         place_in(store.entry(name).type.shape, element),
         std::isfinite(value) ? " as " + std::string(name_of(dtype)) : "");
}

} // namespace

void load_weights(const models::ModelSource& source, const offload::ModelData& data) {
    const formats::TensorStore store(source.folder());
    const DType dtype = data.dtype(optimizer_weights(data));
    for (std::int32_t i = 0; i < data.tensors(); ++i) {
        const std::string name = models::checkpoint_name(source, store, data.tensor(i).name);
        std::atomic<std::int64_t> not_finite = INT64_MAX; // the first; threads read pieces in any order
        fill_weights(data, i, [&](std::span<const sharding::SliceRun> runs, std::span<std::byte> piece) {
            read_runs(runs, piece, size_of(dtype), [&](std::int64_t first, std::span<std::byte> out) {
                store.read_range_converted(name, static_cast<std::uint64_t>(first), dtype, out);
                const auto found = formats::first_not_finite(dtype, out);
                if (!found) return;
                for (std::int64_t known = not_finite; first + *found < known;)
                    if (not_finite.compare_exchange_weak(known, first + *found)) break;
            });
        });
        if (not_finite < INT64_MAX) fail_not_finite(store, name, not_finite, dtype);
    }
}

void initialise_weights(std::span<const StoredTensor> stored, std::span<const models::Initialisation> initialisation,
                        std::uint64_t seed, const offload::ModelData& data) {
    const WholeTensors tensors(stored, data);
    const DType dtype = data.dtype(optimizer_weights(data));
    for (std::int32_t i = 0; i < data.tensors(); ++i) {
        const models::Initialisation& how = initialisation[tensors.whole_of(i)];
        fill_weights(data, i, [&](std::span<const sharding::SliceRun> runs, std::span<std::byte> piece) {
            std::vector<float> values(piece.size() / static_cast<std::size_t>(size_of(dtype)));
            for (const sharding::SliceRun& run : runs)
                models::initialise(
                    how, seed, data.tensor(i).name, run.whole,
                    std::span(values).subspan(static_cast<std::size_t>(run.part), static_cast<std::size_t>(run.count)));
            formats::convert_elements(DType::float32, std::as_bytes(std::span(values)), dtype, piece);
        });
    }
}

fs::path save_model(comm::Group& group, const models::ModelSource& source, std::span<const StoredTensor> stored,
                    const offload::ModelData& data, const fs::path& folder) {
    const DType dtype = data.dtype(Region::weights);
    fs::path temporary = folder;
    temporary += ".tmp";
    try {
        comm::first_does(group, [&] {
            remove_quietly(temporary);
            make_folders(temporary);
            models::copy_model_files(source, temporary, dtype);
        });
        const SavedPart weights[] = {{"", Region::weights}};
        write_whole_tensors(group, temporary / "model.safetensors", stored, data, weights, {{"format", "pt"}}, false);
    } catch (...) {
        if (group.rank() == 0) remove_quietly(temporary);
        throw;
    }
    return comm::first_decides(group, [&] {
        sync_folder(temporary);
        const fs::path previous = run::set_aside(folder);
        rename_durably(temporary, folder);
        return previous.string();
    });
}

} // namespace tutti::checkpoints

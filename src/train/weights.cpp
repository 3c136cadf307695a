#include "train/weights.h"

#include "base/error.h"
#include "comm/agree.h"
#include "models/checkpoint.h"
#include "train/run_folder.h"
#include "train/tensor_pieces.h"
#include "train/whole_tensors.h"

#include <algorithm>

namespace tutti {
namespace {

// Every value is a function of its place alone, so threads may share the work as they like.
class Initialiser {
  public:
    Initialiser(const Initialisation& how, std::uint64_t seed, const std::string& name, DType dtype)
        : how_(how), seed_(seed), name_(name), dtype_(dtype) {}

    void operator()(std::span<const Stretch> stretches, std::span<std::byte> piece) {
        const std::int64_t size = size_of(dtype_);
        parts_.clear();
        for (const Stretch& one : stretches)
            for (std::int64_t done = 0; done < one.count; done += most)
                parts_.push_back({one.whole + done, one.piece + done, std::min(most, one.count - done)});
        const auto count = static_cast<std::int64_t>(parts_.size());
#pragma omp parallel if (static_cast <std::int64_t>(piece.size()) > most * size)
        {
            std::vector<float> values(static_cast<std::size_t>(most));
#pragma omp for schedule(static)
            for (std::int64_t i = 0; i < count; ++i) {
                const Stretch& part = parts_[static_cast<std::size_t>(i)];
                const std::span made = std::span(values).first(static_cast<std::size_t>(part.count));
                initialise(how_, seed_, name_, part.whole, made);
                convert_elements(DType::float32, std::as_bytes(made), dtype_,
                                 piece.subspan(static_cast<std::size_t>(part.piece * size),
                                               static_cast<std::size_t>(part.count * size)));
            }
        }
    }

  private:
    static constexpr std::int64_t most = std::int64_t{1} << 15; // elements of a part, which one thread makes

    const Initialisation& how_;
    std::uint64_t seed_;
    const std::string& name_;
    DType dtype_;
    std::vector<Stretch> parts_;
};

} // namespace

void load_weights(const ModelSource& source, const ModelData& data) {
    const TensorStore store(source.folder());
    const DType dtype = data.dtype(optimizer_weights(data));
    for (std::int32_t i = 0; i < data.tensors(); ++i) {
        const std::string name = checkpoint_name(source, store, data.tensor(i).name);
        fill_weights(data, i, [&](std::span<const Stretch> stretches, std::span<std::byte> piece) {
            read_stretches(stretches, piece, size_of(dtype), [&](std::int64_t first, std::span<std::byte> out) {
                store.read_range_converted(name, static_cast<std::uint64_t>(first), dtype, out);
            });
        });
    }
}

void initialise_weights(std::span<const StoredTensor> stored, std::span<const Initialisation> initialisation,
                        std::uint64_t seed, const ModelData& data) {
    const WholeTensors tensors(stored, data);
    const DType dtype = data.dtype(optimizer_weights(data));
    for (std::int32_t i = 0; i < data.tensors(); ++i)
        fill_weights(data, i, Initialiser(initialisation[tensors.whole_of(i)], seed, data.tensor(i).name, dtype));
}

fs::path save_model(Group& group, const ModelSource& source, std::span<const StoredTensor> stored,
                    const ModelData& data, const fs::path& folder) {
    const DType dtype = data.dtype(Region::weights);
    fs::path temporary = folder;
    temporary += ".tmp";
    std::error_code ignored;
    try {
        first_does(group, [&] {
            fs::remove_all(temporary, ignored);
            make_folders(temporary);
            copy_model_files(source, temporary, dtype);
        });
        const SavedPart weights[] = {{"", Region::weights}};
        write_whole_tensors(group, temporary / "model.safetensors", stored, data, weights, {{"format", "pt"}}, false);
    } catch (...) {
        if (group.rank() == 0) fs::remove_all(temporary, ignored);
        throw;
    }
    return first_decides(group, [&] {
        sync_folder(temporary);
        const fs::path previous = set_aside(folder);
        rename_durably(temporary, folder);
        return previous.string();
    });
}

} // namespace tutti

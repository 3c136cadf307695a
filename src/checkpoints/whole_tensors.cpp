#include "checkpoints/whole_tensors.h"

#include "base/error.h"
#include "checkpoints/shared_tensors.h"
#include "checkpoints/tensor_pieces.h"

#include <algorithm>

namespace tutti::checkpoints {

WholeTensors::WholeTensors(std::span<const StoredTensor> stored, const offload::ModelData& data)
    : held_(stored.size()) {
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < stored.size(); ++i) places.emplace(stored[i].name, i);
    for (std::int32_t held = 0; held < data.tensors(); ++held) {
        const memory::HeldTensor& tensor = data.tensor(held);
        const auto found = places.find(tensor.name);
        TUTTI_CHECK(found != places.end(), "the model has no tensor {}", tensor.name);
        const Shape& whole = stored[found->second].type.shape;
        TUTTI_CHECK(tensor.slice.whole == whole, "{}: a slice of {} is held, but the model has {}", tensor.name,
                    to_string(tensor.slice.whole), to_string(whole));
        whole_.push_back(found->second);
        held_[found->second].push_back(held);
    }
}

std::string write_whole_tensors(comm::Group& group, const fs::path& path, std::span<const StoredTensor> stored,
                                const offload::ModelData& data, std::span<const SavedPart> parts,
                                const std::map<std::string, std::string>& metadata, bool checksum) {
    const WholeTensors tensors(stored, data);
    std::vector<StoredTensor> specs;
    std::vector<std::size_t> mine;
    for (const SavedPart& part : parts)
        for (std::size_t i = 0; i < stored.size(); ++i) {
            if (std::ranges::any_of(tensors.held_of(i),
                                    [&](std::int32_t held) { return data.saved(part.region, held).size() > 0; }))
                mine.push_back(specs.size());
            specs.push_back({part.prefix + stored[i].name, {data.dtype(part.region), stored[i].type.shape}});
        }
    SharedTensorFile file(group, path, specs, metadata);
    file.write(mine, [&](std::size_t number, const SharedTensorFile::Put& put) {
        const Region region = parts[number / stored.size()].region;
        for (std::int32_t held : tensors.held_of(number % stored.size())) for_each_saved(data, region, held, put);
    });
    return checksum ? file.checksum() : "";
}

} // namespace tutti::checkpoints

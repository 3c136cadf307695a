#include "checkpoints/whole_tensors.h"

#include "base/error.h"
#include "checkpoints/shared_tensors.h"
#include "checkpoints/tensor_pieces.h"

namespace tutti::checkpoints {

WholeTensors::WholeTensors(std::span<const StoredTensor> stored, const offload::ModelData& data)
    : owned_(stored.size()) {
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < stored.size(); ++i) places.emplace(stored[i].name, i);
    for (std::int32_t owned = 0; owned < data.tensors(); ++owned) {
        const memory::OwnedTensor& tensor = data.tensor(owned);
        const auto found = places.find(tensor.name);
        TUTTI_CHECK(found != places.end(), "the model has no tensor {}", tensor.name);
        const Shape& whole = stored[found->second].type.shape;
        TUTTI_CHECK(tensor.slice.whole == whole, "{}: a slice of {} is owned, but the model has {}", tensor.name,
                    to_string(tensor.slice.whole), to_string(whole));
        whole_.push_back(found->second);
        TUTTI_CHECK(!owned_[found->second], "{} twice", tensor.name);
        owned_[found->second] = owned;
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
            if (const auto owned = tensors.owned_of(i); owned && data.saved(part.region, *owned).size() > 0)
                mine.push_back(specs.size());
            specs.push_back({part.prefix + stored[i].name, {data.dtype(part.region), stored[i].type.shape}});
        }
    SharedTensorFile file(group, path, specs, metadata);
    file.write(mine, [&](std::size_t number, const SharedTensorFile::Put& put) {
        const Region region = parts[number / stored.size()].region;
        for_each_saved(data, region, *tensors.owned_of(number % stored.size()), put);
    });
    return checksum ? file.checksum() : "";
}

} // namespace tutti::checkpoints

// The tensors of the whole model, beside those that a rank owns parts of.
#pragma once

#include "comm/group.h"
#include "formats/safetensors.h"
#include "offload/execution/model_data.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::checkpoints {

// Which tensor of the model each of a rank's is, and the other way round. `stored` are those of the model.
class WholeTensors {
  public:
    WholeTensors(std::span<const StoredTensor> stored, const offload::ModelData& data);

    std::size_t whole_of(std::int32_t owned) const { return whole_[static_cast<std::size_t>(owned)]; }
    std::optional<std::int32_t> owned_of(std::size_t whole) const { return owned_[whole]; } // none: not of this rank

  private:
    std::vector<std::size_t> whole_;
    std::vector<std::optional<std::int32_t>> owned_;
};

// One list of chunks in a file: the names of its tensors begin with the prefix.
struct SavedPart {
    std::string prefix;
    Region region;
};

// A safetensors file of all tensors of the parts, part after part, written by all ranks together. The checksum of it
// where `checksum` asks for one. Where it throws, rank 0 has to remove the file.
std::string write_whole_tensors(comm::Group& group, const fs::path& path, std::span<const StoredTensor> stored,
                                const offload::ModelData& data, std::span<const SavedPart> parts,
                                const std::map<std::string, std::string>& metadata, bool checksum);

} // namespace tutti::checkpoints

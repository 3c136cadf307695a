// A safetensors file that all ranks of a group write together: of whole tensors, of which each rank owns parts.
// Calls are for all ranks and end alike on all of them; after one that throws, rank 0 removes the file.
#pragma once

#include "comm/group.h"
#include "formats/checksum.h"
#include "formats/safetensors.h"

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tutti::checkpoints {

// Ranks hear of each other after about this much of a file. So one that waits for the others does not take slow disks
// for lost ranks, and a disk that is full ends the work of all.
constexpr Bytes bytes_between_words{std::int64_t{1} << 30};

class SharedTensorFile {
  public:
    // Rank 0 makes the file, with its header and full length. All ranks declare the same tensors.
    SharedTensorFile(comm::Group& group, fs::path path, std::span<const StoredTensor> tensors,
                     const std::map<std::string, std::string>& metadata = {}, Bytes round = bytes_between_words);

    // Puts elements of the whole tensor, from element `first` on.
    using Put = std::function<void(std::int64_t first, std::span<const std::byte> bytes)>;
    // Calls `write` for each of `mine`: the tensors, as numbered when they were declared, of which this rank has
    // something to put. Afterwards the file is on the disk.
    void write(std::span<const std::size_t> mine, const std::function<void(std::size_t tensor, const Put& put)>& write);

    std::string checksum(); // of the whole file, once it is written

  private:
    void put(SharedFile& file, std::uint64_t offset, std::span<const std::byte> bytes);

    comm::Group& group_;
    fs::path path_;
    formats::SafetensorsLayout layout_;
    Bytes round_;
    // What rank 0 wrote itself, in order from the start, need not be read again.
    formats::Checksum begun_;
    std::uint64_t hashed_ = 0;
};

// Rank 0 reads the file, from `hashed` on where its first bytes are in `begun` already.
std::string checksum_of_file(comm::Group& group, const fs::path& path, formats::Checksum begun = {},
                             std::uint64_t hashed = 0, Bytes round = bytes_between_words);

} // namespace tutti::checkpoints

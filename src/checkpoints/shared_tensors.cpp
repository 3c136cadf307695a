#include "checkpoints/shared_tensors.h"

#include "base/error.h"
#include "comm/agree.h"

#include <algorithm>
#include <optional>

namespace tutti::checkpoints {

SharedTensorFile::SharedTensorFile(comm::Group& group, fs::path path, std::span<const StoredTensor> tensors,
                                   const std::map<std::string, std::string>& metadata, Bytes round)
    : group_(group), path_(std::move(path)), layout_(formats::lay_out_safetensors(tensors, metadata)), round_(round) {
    comm::first_does(group_, [&] {
        SharedFile::make(path_, layout_.size());
        SharedFile file(path_);
        put(file, 0, std::as_bytes(std::span(layout_.head)));
        file.sync();
    });
}

void SharedTensorFile::write(std::span<const std::size_t> mine,
                             const std::function<void(std::size_t, const Put&)>& write) {
    std::optional<SharedFile> file;
    const std::uint64_t rounds = layout_.size() / static_cast<std::uint64_t>(round_.count) + 1;
    for (std::uint64_t round = 0; round < rounds; ++round)
        comm::agree(group_, [&] {
            const std::size_t begin = mine.size() * round / rounds, end = mine.size() * (round + 1) / rounds;
            if (begin == end) return;
            if (!file) file.emplace(path_);
            for (std::size_t tensor : mine.subspan(begin, end - begin)) {
                const formats::TensorEntry& entry = layout_.entries[tensor];
                write(tensor, [&](std::int64_t first, std::span<const std::byte> bytes) {
                    const std::uint64_t offset =
                        entry.begin + static_cast<std::uint64_t>(first * size_of(entry.type.dtype));
                    TUTTI_CHECK(first >= 0 && offset + bytes.size() <= entry.end, "{}: {} bytes from element {} of {}",
                                entry.name, bytes.size(), first, to_string(entry.type.shape));
                    put(*file, offset, bytes);
                });
            }
            file->sync();
        });
}

void SharedTensorFile::put(SharedFile& file, std::uint64_t offset, std::span<const std::byte> bytes) {
    file.write(offset, bytes);
    if (group_.rank() != 0 || offset != hashed_) return;
    begun_.update(bytes);
    hashed_ += bytes.size();
}

std::string SharedTensorFile::checksum() { return checksum_of_file(group_, path_, std::move(begun_), hashed_, round_); }

std::string checksum_of_file(comm::Group& group, const fs::path& path, formats::Checksum begun, std::uint64_t hashed,
                             Bytes round) {
    std::optional<InputFile> file; // of rank 0
    std::string result;
    while (result.empty())
        result = comm::first_decides(group, [&]() -> std::string {
            if (!file) file.emplace(path);
            const std::uint64_t count = std::min(static_cast<std::uint64_t>(round.count), file->size() - hashed);
            formats::update(begun, *file, hashed, count);
            hashed += count;
            return hashed == file->size() ? begun.hex() : "";
        });
    return result;
}

} // namespace tutti::checkpoints

#include "formats/checksum.h"

#include "base/error.h"

#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace tutti::formats {

void Checksum::Release::operator()(void* state) const { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }

Checksum::Checksum() : state_(XXH3_createState()) {
    if (!state_) fail_world("out of memory for a checksum");
    XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Checksum::update(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
    return fmt::format("{:016x}", XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get())));
}

void update(Checksum& checksum, const InputFile& file, std::uint64_t offset, std::uint64_t count) {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(count, 1 << 20));
    while (count > 0) {
        const std::span piece(buffer.data(), std::min<std::uint64_t>(buffer.size(), count));
        file.read(offset, piece);
        checksum.update(piece);
        offset += piece.size();
        count -= piece.size();
    }
}

std::string checksum_of_file(const fs::path& path) {
    const InputFile file(path);
    Checksum checksum;
    update(checksum, file, 0, file.size());
    return checksum.hex();
}

} // namespace tutti::formats

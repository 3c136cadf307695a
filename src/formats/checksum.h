// XXH3 checksums of files: with them a checkpoint's manifest finds damage. Not a defence against forgery.
#pragma once

#include "base/file.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tutti::formats {

class Checksum {
  public:
    Checksum();
    void update(std::span<const std::byte> bytes);
    std::string hex() const; // of everything so far: 16 digits

  private:
    struct Release {
        void operator()(void* state) const;
    };
    std::unique_ptr<void, Release> state_;
};

// Adds bytes of a file, from `offset` on.
void update(Checksum& checksum, const InputFile& file, std::uint64_t offset, std::uint64_t count);
std::string checksum_of_file(const fs::path& path);

} // namespace tutti::formats

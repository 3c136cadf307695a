// SpillFile: a file of known size for model data that does not fit in host memory. Several threads read and write it at
// any offset. The file has no name, so the system removes it when the process ends.
//
// Where offset, size and address are multiples of disk_alignment, bytes go past the system's cache, which would only
// take memory from those who need it; other bytes go through it. Large requests are made in several parts at once.
#pragma once

#include "base/file.h"
#include "base/units.h"
#include "offload/backing_plan.h"

namespace tutti::offload {

class SpillFile {
  public:
    // In a folder that has to be there. All of it is taken at once, so that a full disk is known now: WorldError.
    SpillFile(fs::path folder, Bytes size);
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;
    ~SpillFile();

    // WorldError where the disk fails or the file was cut short.
    void read(std::int64_t offset, std::span<std::byte> out) const;
    void write(std::int64_t offset, std::span<const std::byte> in) const;

  private:
    // Something cut short would be filled up with zeros by the next write, and nobody would know.
    void check_size() const;
    int descriptor_for(std::int64_t offset, std::span<const std::byte> bytes) const;
    void read_part(std::int64_t offset, std::span<std::byte> out) const;
    void write_part(std::int64_t offset, std::span<const std::byte> in) const;

    fs::path folder_;
    int cached_ = -1, direct_ = -1; // the same file; no direct one where the file system has none
    std::int64_t size_ = 0;
};

} // namespace tutti::offload

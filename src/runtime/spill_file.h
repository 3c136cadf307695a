// A file of known size for what does not fit in memory: written and read at any offset, by several threads. It has no
// name, so that it goes with its process, however that ends: nothing in it outlives the run.
#pragma once

#include "base/file.h"
#include "base/units.h"

namespace tutti {

class SpillFile {
  public:
    // In a folder that has to be there. All of it is taken at once, so that a full disk is known now: WorldError.
    SpillFile(fs::path folder, Bytes size);
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;
    ~SpillFile();

    const fs::path& folder() const { return folder_; }
    // WorldError where the disk fails or the file was cut short.
    void read(std::int64_t offset, std::span<std::byte> out) const;
    void write(std::int64_t offset, std::span<const std::byte> in) const;
    // Bytes per second, by writing some of it to the disk itself. What lies there is nobody's then.
    double write_speed() const;

  private:
    // Something cut short would be filled up with zeros by the next write, and nobody would know.
    void check_size() const;

    fs::path folder_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

} // namespace tutti

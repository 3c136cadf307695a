// Writes scalars as a TensorBoard event file: TFRecords, each an Event message, both encoded by hand (the two formats
// are a page of code; the libraries that write them are not).
#pragma once

#include "base/file.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace tutti::formats {

class TensorBoardWriter {
  public:
    // Makes FOLDER/events.out.tfevents.TIME.HOST.PID.N; TensorBoard joins the files of a folder, so a resumed run adds
    // one.
    explicit TensorBoardWriter(const fs::path& folder);
    TensorBoardWriter(const TensorBoardWriter&) = delete;
    TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
    ~TensorBoardWriter(); // flushes, silently

    const fs::path& path() const { return path_; }
    void add_scalar(std::string_view tag, std::int64_t step, double value);
    void flush(); // WorldError if the disk does not take it

  private:
    fs::path path_;
    std::ofstream file_;
    std::string pending_;
};

// The two checksums of TFRecords.
std::uint32_t crc32c(std::span<const std::byte> bytes);
std::uint32_t masked_crc32c(std::span<const std::byte> bytes);

} // namespace tutti::formats

// Safetensors files for tests to read, written by one process and tensor after tensor.
#pragma once

#include "formats/safetensors.h"

namespace tutti::test {

class SafetensorsWriter {
  public:
    SafetensorsWriter(const fs::path& path, std::span<const StoredTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {})
        : file_(path) {
        file_.write(formats::lay_out_safetensors(tensors, metadata).head);
    }
    void append(std::span<const std::byte> bytes) { file_.write(bytes); } // in the order they were declared
    void finish() { file_.finish(); }

  private:
    OutputFile file_;
};

} // namespace tutti::test

// Safetensors files: an 8-byte header length, a JSON header, then the tensors' bytes without gaps. The reader checks
// the whole header before any tensor is read; who writes one is told where each tensor goes, so that several may write
// it in pieces.
#pragma once

#include "base/file.h"
#include "base/tensor_type.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::formats {

// A tensor in a file.
struct TensorEntry : StoredTensor {
    std::uint64_t begin = 0; // absolute offsets in the file
    std::uint64_t end = 0;

    std::uint64_t bytes() const { return end - begin; }
};

class SafetensorsFile {
  public:
    explicit SafetensorsFile(const fs::path& path); // Error if anything in the header is wrong

    const fs::path& path() const { return file_.path(); }
    // In the order of their bytes. Tensors of a type that is not read here are left out: see `foreign`.
    const std::vector<TensorEntry>& entries() const { return entries_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    // Tensors stored as U8, F8_E4M3 and the like: name and type as written. They do no harm until asked for.
    const std::map<std::string, std::string, std::less<>>& foreign() const { return foreign_; }

    // nullptr if there is none; Error if the tensor is there with a foreign type.
    const TensorEntry* find(std::string_view name) const;
    void read(const TensorEntry& entry, std::span<std::byte> out) const; // the whole tensor
    void read_range(const TensorEntry& entry, std::uint64_t first_element, std::span<std::byte> out) const;

  private:
    InputFile file_;
    std::vector<TensorEntry> entries_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::map<std::string, std::string, std::less<>> foreign_;
    std::map<std::string, std::string> metadata_;
};

// A file to be written: its first bytes, up to the data, and where each tensor goes, in the order they were declared.
struct SafetensorsLayout {
    std::string head;
    std::vector<TensorEntry> entries;

    std::uint64_t size() const { return entries.empty() ? head.size() : entries.back().end; }
};

SafetensorsLayout lay_out_safetensors(std::span<const StoredTensor> tensors,
                                      const std::map<std::string, std::string>& metadata = {});

} // namespace tutti::formats

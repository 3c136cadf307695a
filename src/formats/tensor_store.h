// TensorStore: the weights of a model folder: one model.safetensors, or the shards that model.safetensors.index.json
// names.
#pragma once

#include "formats/safetensors.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::formats {

class TensorStore {
  public:
    explicit TensorStore(const fs::path& folder);
    static bool is_in(const fs::path& folder);

    const fs::path& folder() const { return folder_; }
    std::vector<std::string> names() const; // sorted
    // nullptr if there is none; Error if the tensor has a type that is not read.
    const TensorEntry* find(std::string_view name) const;
    // The others fail with an Error where there is no such tensor.
    const TensorEntry& entry(std::string_view name) const;
    void read(std::string_view name, std::span<std::byte> out) const;
    // A floating tensor as float64, float32, bf16 or fp16; rounds once, to nearest even.
    void read_converted(std::string_view name, DType to, std::span<std::byte> out) const;
    void read_range_converted(std::string_view name, std::uint64_t first_element, DType to,
                              std::span<std::byte> out) const;

  private:
    void open_single(const fs::path& path);
    void open_shards(const fs::path& index_path);
    const SafetensorsFile& file_of(std::string_view name) const;

    fs::path folder_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t, std::less<>> file_of_name_;
};

// Converts floating elements; spans hold the same number of them.
void convert_elements(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> out);

// The first floating element that is a NaN or infinite; none where all are finite.
std::optional<std::int64_t> first_not_finite(DType dtype, std::span<const std::byte> elements);

} // namespace tutti::formats

#include "formats/tensor_store.h"

#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace tutti::formats {
namespace {

constexpr const char *single_file = "model.safetensors", *index_file = "model.safetensors.index.json";

// float64 to float32 rounded to odd: the result keeps enough of the value that a second rounding, to a 16-bit type,
// gives what rounding once would have given.
float round_to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
    auto bits = std::bit_cast<std::uint32_t>(nearest);
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits; // towards zero
    return std::bit_cast<float>(bits | 1);
}

template <class To, class From>
To convert(From value) {
    constexpr bool from_double = std::is_same_v<From, double>;
    if constexpr (std::is_same_v<To, From>)
        return value;
    else if constexpr (std::is_same_v<To, double>)
        return static_cast<double>(static_cast<float>(value));
    else if constexpr (std::is_same_v<To, float>)
        return static_cast<float>(value);
    else if constexpr (from_double)
        return To(round_to_odd(value));
    else
        return To(static_cast<float>(value));
}

template <class From, class To>
void convert_all(std::span<const std::byte> source, std::span<std::byte> out) {
    const std::size_t count = source.size() / sizeof(From);
    TUTTI_CHECK(source.size() == count * sizeof(From) && out.size() == count * sizeof(To), "{} and {} bytes",
                source.size(), out.size());
    for (std::size_t i = 0; i < count; ++i) { // neither side need be aligned
        From value;
        std::memcpy(&value, source.data() + i * sizeof(From), sizeof(From));
        const To converted = convert<To>(value);
        std::memcpy(out.data() + i * sizeof(To), &converted, sizeof(To));
    }
}

// Calls action with a value of the C++ type of a floating dtype.
template <class Action>
void with_floating_type(DType dtype, Action action) {
    switch (dtype) {
    case DType::float64: return action(double{});
    case DType::float32: return action(float{});
    case DType::bfloat16: return action(BFloat16{});
    case DType::float16: return action(Float16{});
    default: TUTTI_CHECK(false, "{} is not floating", name_of(dtype));
    }
}

// A shard's name comes from a file and must stay inside the folder.
void check_shard_name(const std::string& name, const std::string& where) {
    const bool plain = !name.empty() && name != "." && name.find("..") == std::string::npos &&
                       name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain)
        fail("{} names the shard {}; shards are plain file names in the same folder, without '/' or '..'", where,
             in_quotes(name));
}

} // namespace

void convert_elements(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> out) {
    with_floating_type(from, [&]<class From>(From) {
        with_floating_type(to, [&]<class To>(To) { convert_all<From, To>(source, out); });
    });
}

namespace {

// Exponents of nothing but ones are infinities and NaNs. Blocks are looked through without a branch, so that the
// compiler makes it SIMD.
template <class Bits, Bits exponent>
std::optional<std::int64_t> first_with_exponent(std::span<const std::byte> elements) {
    constexpr std::size_t block = 1024;
    const std::size_t count = elements.size() / sizeof(Bits);
    auto is_set = [&](std::size_t i) {
        Bits bits;
        std::memcpy(&bits, elements.data() + i * sizeof(Bits), sizeof(Bits));
        return (bits & exponent) == exponent;
    };
    for (std::size_t first = 0; first < count; first += block) {
        const std::size_t end = std::min(first + block, count);
        Bits any = 0;
        for (std::size_t i = first; i < end; ++i) any |= static_cast<Bits>(is_set(i) ? 1 : 0);
        if (any == 0) continue;
        for (std::size_t i = first; i < end; ++i)
            if (is_set(i)) return static_cast<std::int64_t>(i);
    }
    return std::nullopt;
}

} // namespace

std::optional<std::int64_t> first_not_finite(DType dtype, std::span<const std::byte> elements) {
    switch (dtype) {
    case DType::float64: return first_with_exponent<std::uint64_t, 0x7ff0'0000'0000'0000>(elements);
    case DType::float32: return first_with_exponent<std::uint32_t, 0x7f80'0000>(elements);
    case DType::bfloat16: return first_with_exponent<std::uint16_t, 0x7f80>(elements);
    case DType::float16: return first_with_exponent<std::uint16_t, 0x7c00>(elements);
    default: return std::nullopt;
    }
}

bool TensorStore::is_in(const fs::path& folder) {
    return is_there(folder / single_file) || is_there(folder / index_file);
}

TensorStore::TensorStore(const fs::path& folder) : folder_(folder) {
    if (is_there(folder / single_file)) {
        open_single(folder / single_file);
        return;
    }
    if (is_there(folder / index_file)) {
        open_shards(folder / index_file);
        return;
    }
    const bool pickled = is_there(folder / "pytorch_model.bin") || is_there(folder / "pytorch_model.bin.index.json");
    fail("{} holds neither {} nor {}{}", folder.string(), single_file, index_file,
         pickled ? "; it holds pytorch_model.bin, but only safetensors are read: save the model again with "
                   "safe_serialization=True"
                 : "");
}

void TensorStore::open_single(const fs::path& path) {
    files_.emplace_back(path);
    for (const TensorEntry& entry : files_[0].entries()) file_of_name_.emplace(entry.name, 0);
    for (const auto& [name, dtype] : files_[0].foreign()) file_of_name_.emplace(name, 0);
}

void TensorStore::open_shards(const fs::path& index_path) {
    const std::string where = index_path.string();
    const nlohmann::json index = read_json(index_path);
    const JsonObject weight_map = JsonObject(index, where).object("weight_map");
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, shard] : weight_map.value().items()) {
        if (!shard.is_string()) fail("{}: the shard of {} is not a string", where, in_quotes(name));
        const auto& shard_name = shard.get_ref<const std::string&>();
        const auto [place, is_new] = opened.emplace(shard_name, files_.size());
        if (is_new) {
            check_shard_name(shard_name, where);
            if (!is_there(folder_ / shard_name))
                fail("{} names the shard {}, which is missing from {}", where, in_quotes(shard_name), folder_.string());
            files_.emplace_back(folder_ / shard_name);
        }
        const SafetensorsFile& file = files_[place->second];
        if (!file.foreign().contains(name) && !file.find(name))
            fail("{} says that tensor {} is in {}, which does not hold it", where, in_quotes(name),
                 in_quotes(shard_name));
        file_of_name_.emplace(name, place->second);
    }
}

std::vector<std::string> TensorStore::names() const {
    std::vector<std::string> names;
    names.reserve(file_of_name_.size());
    for (const auto& [name, file] : file_of_name_) names.push_back(name);
    return names;
}

const TensorEntry* TensorStore::find(std::string_view name) const {
    const auto found = file_of_name_.find(name);
    return found == file_of_name_.end() ? nullptr : files_[found->second].find(name);
}

const TensorEntry& TensorStore::entry(std::string_view name) const {
    const TensorEntry* found = find(name);
    if (!found) fail("{} holds no tensor {}", folder_.string(), in_quotes(name));
    return *found;
}

const SafetensorsFile& TensorStore::file_of(std::string_view name) const {
    return files_[file_of_name_.find(name)->second];
}

void TensorStore::read(std::string_view name, std::span<std::byte> out) const {
    const TensorEntry& found = entry(name);
    file_of(name).read(found, out);
}

void TensorStore::read_converted(std::string_view name, DType to, std::span<std::byte> out) const {
    const auto elements = static_cast<std::uint64_t>(entry(name).type.shape.elements());
    TUTTI_CHECK(out.size() == elements * static_cast<std::uint64_t>(size_of(to)), "{}: {} bytes for {} {}", name,
                out.size(), elements, name_of(to));
    read_range_converted(name, 0, to, out);
}

void TensorStore::read_range_converted(std::string_view name, std::uint64_t first_element, DType to,
                                       std::span<std::byte> out) const {
    const TensorEntry& found = entry(name);
    const SafetensorsFile& file = file_of(name);
    if (found.type.dtype == to) return file.read_range(found, first_element, out);
    if (!is_floating(found.type.dtype))
        fail("{}: tensor {} is {}, where a floating type was expected", file.path().string(), in_quotes(name),
             name_of(found.type.dtype));
    constexpr std::size_t piece_elements = 1 << 17;
    const auto from_size = static_cast<std::size_t>(size_of(found.type.dtype));
    const auto to_size = static_cast<std::size_t>(size_of(to));
    std::vector<std::byte> buffer(std::min(piece_elements, out.size() / to_size) * from_size);
    for (std::uint64_t element = first_element; !out.empty();) {
        const std::size_t count = std::min(piece_elements, out.size() / to_size);
        const std::span source(buffer.data(), count * from_size);
        file.read_range(found, element, source);
        convert_elements(found.type.dtype, source, to, out.first(count * to_size));
        out = out.subspan(count * to_size);
        element += count;
    }
}

} // namespace tutti::formats

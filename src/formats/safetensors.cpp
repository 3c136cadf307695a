#include "formats/safetensors.h"

#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "formats/json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace tutti::formats {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian, and read as it lies");

constexpr std::uint64_t largest_header = 100'000'000; // the limit of the reference implementation

constexpr std::array<std::pair<std::string_view, DType>, 7> dtype_names = {{{"F64", DType::float64},
                                                                            {"F32", DType::float32},
                                                                            {"BF16", DType::bfloat16},
                                                                            {"F16", DType::float16},
                                                                            {"I64", DType::int64},
                                                                            {"I32", DType::int32},
                                                                            {"BOOL", DType::boolean}}};

std::optional<DType> dtype_of(std::string_view name) {
    for (const auto& [known, dtype] : dtype_names)
        if (known == name) return dtype;
    return std::nullopt;
}

std::string_view stored_name(DType dtype) {
    return std::find_if(dtype_names.begin(), dtype_names.end(), [&](const auto& row) { return row.second == dtype; })
        ->first;
}

// Bytes of a dense tensor, or nullopt if strides or size would not fit in 63 bits (whatever zeros are among the sizes).
std::optional<std::uint64_t> bytes_of(const TensorType& type) {
    std::optional<std::int64_t> bytes = size_of(type.dtype);
    for (std::int64_t size : type.shape) {
        bytes = checked_multiply(*bytes, std::max<std::int64_t>(size, 1));
        if (!bytes) return std::nullopt;
    }
    const bool empty = std::find(type.shape.begin(), type.shape.end(), 0) != type.shape.end();
    return empty ? 0 : static_cast<std::uint64_t>(*bytes);
}

// One "name": {"dtype", "shape", "data_offsets"} of a header, with offsets still relative to the data.
struct HeaderRow {
    TensorEntry entry;
    std::optional<std::string> foreign_dtype; // as written, where it is not one of ours
};

class HeaderReader {
  public:
    HeaderReader(std::string file, std::uint64_t data_bytes) : file_(std::move(file)), data_bytes_(data_bytes) {}

    HeaderRow row(const std::string& name, const json& value) const {
        const std::string where = fmt::format("{}: tensor {}", file_, in_quotes(name));
        const JsonObject object(value, where);
        HeaderRow row;
        row.entry.name = name;
        const std::string dtype = object.string("dtype");
        row.entry.type.shape = shape(object);
        std::tie(row.entry.begin, row.entry.end) = offsets(object);
        if (const auto known = dtype_of(dtype)) {
            row.entry.type.dtype = *known;
            check_size(row.entry, where);
        } else {
            row.foreign_dtype = dtype;
        }
        return row;
    }

    // The tensors' bytes must fill the data from end to end. Sorts the rows by place.
    void check_layout(std::vector<HeaderRow>& rows) const {
        std::sort(rows.begin(), rows.end(), [](const HeaderRow& a, const HeaderRow& b) {
            return std::tie(a.entry.begin, a.entry.end) < std::tie(b.entry.begin, b.entry.end);
        });
        std::uint64_t expected = 0;
        for (const HeaderRow& row : rows) {
            if (row.entry.begin != expected)
                fail("{}: tensor {} begins at byte {} of the data, where {} was expected: tensors may {}", file_,
                     in_quotes(row.entry.name), row.entry.begin, expected,
                     row.entry.begin < expected ? "not overlap" : "leave no hole");
            expected = row.entry.end;
        }
        if (expected != data_bytes_)
            fail("{} holds {} of data, but its tensors end at byte {}", file_, counted(data_bytes_, "byte"), expected);
    }

  private:
    static Shape shape(const JsonObject& object) {
        const json* sizes = object.find("shape");
        if (!sizes || !sizes->is_array()) fail("{} has no list of sizes under \"shape\"", object.where());
        if (sizes->size() > Shape::max_rank)
            fail("{} has {} dimensions; at most {} are read", object.where(), sizes->size(), Shape::max_rank);
        Shape shape;
        for (const json& size : *sizes) {
            const auto whole = as_size(size);
            if (!whole || !std::in_range<std::int64_t>(*whole))
                fail("{} has a size of {} in its shape; sizes are whole numbers from 0", object.where(),
                     in_quotes(size.dump()));
            shape.push_back(static_cast<std::int64_t>(*whole));
        }
        return shape;
    }

    std::pair<std::uint64_t, std::uint64_t> offsets(const JsonObject& object) const {
        const json* pair = object.find("data_offsets");
        if (!pair || !pair->is_array() || pair->size() != 2)
            fail("{} has no \"data_offsets\" of two numbers", object.where());
        const auto begin = as_size((*pair)[0]), end = as_size((*pair)[1]);
        if (!begin || !end)
            fail("{} has data_offsets {}; they are whole numbers from 0", object.where(), in_quotes(pair->dump()));
        if (*begin > *end) fail("{} begins at byte {} and ends before it, at {}", object.where(), *begin, *end);
        if (*end > data_bytes_)
            fail("{} ends at byte {} of the data, but the file holds only {}: it is truncated or damaged",
                 object.where(), *end, data_bytes_);
        return {*begin, *end};
    }

    static void check_size(const TensorEntry& entry, const std::string& where) {
        const auto bytes = bytes_of(entry.type);
        if (!bytes) fail("{} has the shape {}, which is too large to be true", where, to_string(entry.type.shape));
        if (*bytes != entry.bytes())
            fail("{} is {} {} and should take {} bytes, but its data_offsets span {}", where,
                 stored_name(entry.type.dtype), to_string(entry.type.shape), *bytes, entry.bytes());
    }

    static std::optional<std::uint64_t> as_size(const json& value) {
        return value.is_number_unsigned() ? std::optional(value.get<std::uint64_t>()) : std::nullopt;
    }

    std::string file_;
    std::uint64_t data_bytes_;
};

std::string read_header(const InputFile& file) {
    const std::string name = file.path().string();
    if (file.size() < 8)
        fail("{} is not a safetensors file: it holds {}, and the header's length alone takes 8", name,
             counted(file.size(), "byte"));
    std::uint64_t length = 0;
    file.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > file.size() - 8)
        fail("{} says its header takes {}, but only {} follow: it is truncated, or not a safetensors file", name,
             counted(length, "byte"), file.size() - 8);
    if (length > largest_header)
        fail("{} says its header takes {} bytes; at most {} are read", name, length, largest_header);
    std::string header(length, '\0');
    file.read(8, std::as_writable_bytes(std::span(header)));
    return header;
}

std::map<std::string, std::string> read_metadata(const json& value, const std::string& where) {
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : JsonObject(value, where).value().items()) {
        if (!text.is_string()) fail("{}: {} is not a string", where, in_quotes(key));
        metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
}

} // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
    const std::string text = read_header(file_);
    const std::string name = path.string();
    const json header = parse_json(text, "the header of " + name);
    const std::uint64_t data_begin = 8 + text.size();
    const HeaderReader reader(name, file_.size() - data_begin);

    std::vector<HeaderRow> rows;
    for (const auto& [key, value] : JsonObject(header, "the header of " + name).value().items()) {
        if (key == "__metadata__")
            metadata_ = read_metadata(value, name + ": __metadata__");
        else
            rows.push_back(reader.row(key, value));
    }
    reader.check_layout(rows);

    for (HeaderRow& row : rows) {
        if (row.foreign_dtype) {
            foreign_.emplace(row.entry.name, *row.foreign_dtype);
            continue;
        }
        row.entry.begin += data_begin;
        row.entry.end += data_begin;
        index_.emplace(row.entry.name, entries_.size());
        entries_.push_back(std::move(row.entry));
    }
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
    if (const auto found = index_.find(name); found != index_.end()) return &entries_[found->second];
    if (const auto found = foreign_.find(name); found != foreign_.end())
        fail("{}: tensor {} is stored as {}; only F64, F32, BF16, F16, I64, I32 and BOOL are read", path().string(),
             in_quotes(name), in_quotes(found->second));
    return nullptr;
}

void SafetensorsFile::read(const TensorEntry& entry, std::span<std::byte> out) const {
    TUTTI_CHECK(out.size() == entry.bytes(), "{}: {} bytes for {}", entry.name, out.size(), entry.bytes());
    file_.read(entry.begin, out);
}

void SafetensorsFile::read_range(const TensorEntry& entry, std::uint64_t first_element,
                                 std::span<std::byte> out) const {
    const auto size = static_cast<std::uint64_t>(size_of(entry.type.dtype));
    const std::uint64_t elements = entry.bytes() / size;
    TUTTI_CHECK(out.size() % size == 0 && first_element <= elements && out.size() / size <= elements - first_element,
                "{}: {} bytes from element {} of {}", entry.name, out.size(), first_element, elements);
    file_.read(entry.begin + first_element * size, out);
}

SafetensorsLayout lay_out_safetensors(std::span<const StoredTensor> tensors,
                                      const std::map<std::string, std::string>& metadata) {
    std::string header = "{";
    const auto separate = [&] { header += header.size() > 1 ? "," : ""; };
    if (!metadata.empty()) {
        std::string members;
        for (const auto& [key, value] : metadata)
            members += fmt::format("{}{}:{}", members.empty() ? "" : ",", json_string(key), json_string(value));
        header += fmt::format("\"__metadata__\":{{{}}}", members);
    }
    SafetensorsLayout layout;
    std::uint64_t end = 0;
    std::set<std::string_view> names = {"__metadata__"};
    for (const StoredTensor& tensor : tensors) {
        TUTTI_CHECK(names.insert(tensor.name).second, "{} twice", tensor.name);
        const auto bytes = bytes_of(tensor.type);
        TUTTI_CHECK(bytes, "{} {}", tensor.name, to_string(tensor.type.shape));
        separate();
        header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", json_string(tensor.name),
                              stored_name(tensor.type.dtype), to_string(tensor.type.shape), end, end + *bytes);
        layout.entries.push_back({tensor, end, end + *bytes});
        end += *bytes;
    }
    header += "}";
    header.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(header.size()), 8)), ' ');
    const std::uint64_t length = header.size();
    layout.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
    layout.head += header;
    for (TensorEntry& entry : layout.entries) {
        entry.begin += layout.head.size();
        entry.end += layout.head.size();
    }
    return layout;
}

} // namespace tutti::formats

// Text to JSON value, in time and memory that grow with the text alone.
#include "formats/json.h"

#include "base/error.h"
#include "formats/text_file.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::formats {
namespace {

using nlohmann::json;

constexpr std::size_t deepest = 64;

// The parser's own words without its "[json.exception...]" prefix, and without the part of the file it quotes.
std::string explanation(const json::exception& error) {
    std::string text = error.what();
    if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    if (const auto end = text.find("; last read"); end != std::string::npos) text.erase(end);
    if (const auto colon = text.find(": "); text.starts_with("parse error at") && colon != std::string::npos)
        text.erase(0, colon + 2);
    if (text.starts_with("number overflow")) text = "a number is too large";
    return text;
}

// Builds the value as the parser reads the text. The parser's own builder takes quadratic time where it is watched: at
// the end of every object it looks at all of its siblings.
class Builder final : public nlohmann::json_sax<json> {
  public:
    Builder(std::string_view text, const std::string& where, std::uint64_t memory)
        : text_(text), where_(where), memory_(memory) {}

    json take() { return std::move(root_); }

    bool null() override { return add(nullptr), true; }
    bool boolean(bool value) override { return add(value), true; }
    bool number_integer(std::int64_t value) override { return add(value), true; }
    bool number_unsigned(std::uint64_t value) override { return add(value), true; }
    bool number_float(double value, const std::string&) override { return add(value), true; }
    bool binary(json::binary_t&) override { return false; } // not in a text
    bool string(std::string& value) override {
        charge(string_bytes + value.size());
        add(std::move(value));
        return true;
    }

    bool start_object(std::size_t) override {
        charge(object_bytes);
        open(add(json::object()));
        return true;
    }
    bool key(std::string& name) override {
        charge(member_bytes + name.size());
        auto& members = open_.back()->get_ref<json::object_t&>();
        const auto [place, is_new] = members.try_emplace(std::move(name));
        if (!is_new) fail("{} holds the key {} twice in one object", where_, in_quotes(place->first));
        member_ = &place->second;
        return true;
    }
    bool start_array(std::size_t) override {
        charge(array_bytes);
        open(add(json::array()));
        return true;
    }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
        const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text_.size()));
        fail("{} is not JSON: line {}, byte {}: {}", where_, 1 + std::count(text_.begin(), end, '\n'), byte,
             explanation(error));
    }

  private:
    // What the parts of a value take on the heap, with what an allocator adds. An array that grows has twice the room
    // that it needs.
    static constexpr std::uint64_t element_bytes = 2 * sizeof(json), member_bytes = 112, object_bytes = 64,
                                   array_bytes = 48, string_bytes = 48;

    void charge(std::uint64_t bytes) {
        if (bytes > memory_ - used_)
            fail("{} would take more than {} MiB of memory when it is read as JSON", where_, memory_ >> 20);
        used_ += bytes;
    }

    // Puts a value where the next one belongs.
    template <class Value>
    json& add(Value&& value) {
        if (open_.empty()) return root_ = std::forward<Value>(value);
        if (open_.back()->is_object()) return *member_ = std::forward<Value>(value);
        charge(element_bytes);
        return open_.back()->get_ref<json::array_t&>().emplace_back(std::forward<Value>(value));
    }
    void open(json& value) {
        if (open_.size() == deepest) fail("{} nests JSON deeper than {} levels", where_, deepest);
        open_.push_back(&value);
    }
    bool close() { return open_.pop_back(), true; }

    std::string_view text_;
    const std::string& where_;
    std::uint64_t memory_, used_ = 0;
    json root_;
    std::vector<json*> open_; // objects and arrays, the innermost last; none grows while one inside it is open
    json* member_ = nullptr;  // of the innermost object, whose value comes next
};

} // namespace

json parse_json(std::string_view text, const std::string& where, std::uint64_t memory) {
    Builder builder(text, where, memory);
    json::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
}

json read_json(const fs::path& path) {
    return parse_json(read_text_file(path, "a JSON file", 64ull << 20), path.string());
}

} // namespace tutti::formats

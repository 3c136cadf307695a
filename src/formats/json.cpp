#include "formats/json.h"

#include "base/error.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using nlohmann::json;

constexpr std::uint64_t largest_file = 64ull << 20;
constexpr std::size_t deepest = 64;

// Watches a parse: nesting stays shallow, and no key stands twice in one object (the parser would keep the last).
class Watcher {
  public:
    explicit Watcher(const std::string& where) : where_(where) {}

    bool operator()(json::parse_event_t event, const json& parsed) {
        using Event = json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            if (keys_.size() == deepest) fail("{} nests JSON deeper than {} levels", where_, deepest);
            keys_.emplace_back();
        } else if (event == Event::object_end || event == Event::array_end) {
            keys_.pop_back();
        } else if (event == Event::key) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!keys_.back().insert(key).second)
                fail("{} holds the key {} twice in one object", where_, in_quotes(key));
        }
        return true;
    }

  private:
    const std::string& where_;
    std::vector<std::unordered_set<std::string>> keys_; // one per open object or array
};

// The parser's own words without its "[json.exception...]" prefix, and without the part of the file it quotes.
std::string explanation(const json::exception& error) {
    std::string text = error.what();
    if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    if (const auto end = text.find("; last read"); end != std::string::npos) text.erase(end);
    if (const auto colon = text.find(": "); text.starts_with("parse error at") && colon != std::string::npos)
        text.erase(0, colon + 2);
    return text;
}

} // namespace

json parse_json(std::string_view text, const std::string& where) {
    Watcher watcher(where);
    try {
        return json::parse(text.begin(), text.end(),
                           [&](int, json::parse_event_t event, json& parsed) { return watcher(event, parsed); });
    } catch (const json::parse_error& error) {
        const std::size_t byte = std::min(error.byte, text.size());
        const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
        fail("{} is not JSON: line {}, byte {}: {}", where, line, error.byte, explanation(error));
    } catch (const json::exception& error) {
        fail("{} is not JSON: {}", where, explanation(error));
    }
}

json read_json(const fs::path& path) {
    const InputFile file(path);
    if (file.size() > largest_file)
        fail("{} holds {} bytes; a JSON file may hold at most {}", path.string(), file.size(), largest_file);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return parse_json(text, path.string());
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 100;
    const bool cut = text.size() > longest;
    return json(std::string(text.substr(0, longest)) + (cut ? "..." : ""))
        .dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
    return json(std::string(text)).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

JsonObject::JsonObject(const json& value, std::string where) : value_(&value), where_(std::move(where)) {
    if (!value.is_object()) fail("{} holds a JSON {} where an object should be", where_, value.type_name());
}

const json* JsonObject::find(std::string_view key) const {
    const auto found = value_->find(key);
    return found == value_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonObject::find_integer(std::string_view key) const {
    const json* found = find(key);
    if (!found) return std::nullopt;
    if (!found->is_number_integer()) fail_type(key, "an integer");
    if (found->is_number_unsigned() && !std::in_range<std::int64_t>(found->get<std::uint64_t>()))
        fail("{}: {} is {}, which is too large", where_, in_quotes(key), found->get<std::uint64_t>());
    return found->get<std::int64_t>();
}

std::optional<double> JsonObject::find_number(std::string_view key) const {
    const json* found = find(key);
    if (!found) return std::nullopt;
    if (!found->is_number()) fail_type(key, "a number");
    return found->get<double>();
}

std::optional<bool> JsonObject::find_boolean(std::string_view key) const {
    const json* found = find(key);
    if (!found) return std::nullopt;
    if (!found->is_boolean()) fail_type(key, "true or false");
    return found->get<bool>();
}

std::optional<std::string> JsonObject::find_string(std::string_view key) const {
    const json* found = find(key);
    if (!found) return std::nullopt;
    if (!found->is_string()) fail_type(key, "a string");
    return found->get<std::string>();
}

std::int64_t JsonObject::integer(std::string_view key) const {
    if (const auto found = find_integer(key)) return *found;
    fail_missing(key, "an integer");
}

double JsonObject::number(std::string_view key) const {
    if (const auto found = find_number(key)) return *found;
    fail_missing(key, "a number");
}

bool JsonObject::boolean(std::string_view key) const {
    if (const auto found = find_boolean(key)) return *found;
    fail_missing(key, "true or false");
}

std::string JsonObject::string(std::string_view key) const {
    if (auto found = find_string(key)) return *std::move(found);
    fail_missing(key, "a string");
}

JsonObject JsonObject::object(std::string_view key) const {
    const json* found = find(key);
    if (!found) fail_missing(key, "an object");
    if (!found->is_object()) fail_type(key, "an object");
    return JsonObject(*found, where_);
}

void JsonObject::fail_missing(std::string_view key, std::string_view expected) const {
    fail("{} lacks the key {}, which should be {}", where_, in_quotes(key), expected);
}

void JsonObject::fail_type(std::string_view key, std::string_view expected) const {
    const json& found = *find(key);
    std::string shown(found.type_name());
    if (found.is_string())
        shown = in_quotes(found.get<std::string>());
    else if (!found.is_structured())
        shown = found.dump();
    fail("{}: {} is {}, and should be {}", where_, in_quotes(key), shown, expected);
}

} // namespace tutti

#include "formats/json.h"

#include "base/error.h"
#include "base/nearest.h"

#include <algorithm>
#include <utility>

namespace tutti::formats {

using nlohmann::json;

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
    read_->emplace_back(key);
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

const json& JsonObject::list(std::string_view key) const {
    const json* found = find(key);
    if (found == nullptr || !found->is_array()) fail("{}: {} should be a list", where_, key);
    return *found;
}

void JsonObject::expect_no_others() const {
    for (const auto& [key, value] : value_->items())
        if (std::ranges::find(*read_, key) == read_->end())
            fail("{}: unknown key {}{}", where_, in_quotes(key), suggestion(key, *read_));
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

} // namespace tutti::formats

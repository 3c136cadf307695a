// JSON from files that may be hostile: size, memory, depth and duplicate keys are checked, time is linear, and every
// mistake is an Error that names the file and the place.
#pragma once

#include "base/file.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::formats {

// `where` is the file's name, for error sentences. `memory` is the most that the value may take, in bytes: short texts
// such as [{},{}] take 30 times their own size.
constexpr std::uint64_t json_memory = 1ull << 30;
nlohmann::json parse_json(std::string_view text, const std::string& where, std::uint64_t memory = json_memory);
nlohmann::json read_json(const fs::path& path); // at most 64 MiB

// A string of unknown origin as it can stand in an error sentence: in quotes, printable, not endless.
std::string in_quotes(std::string_view text);
// A string as JSON, in quotes.
std::string json_string(std::string_view text);

// An object of a JSON file, read by key with the type that is expected there. A key that is absent or null is nullopt
// for find_, an Error for the others; a value of another type is an Error. Refers to `value`, which must outlive it.
// Copies of it remember together which keys were read.
class JsonObject {
  public:
    JsonObject(const nlohmann::json& value, std::string where); // Error if it is not an object

    const nlohmann::json* find(std::string_view key) const;
    std::optional<std::int64_t> find_integer(std::string_view key) const;
    std::optional<double> find_number(std::string_view key) const;
    std::optional<bool> find_boolean(std::string_view key) const;
    std::optional<std::string> find_string(std::string_view key) const;

    std::int64_t integer(std::string_view key) const;
    double number(std::string_view key) const;
    bool boolean(std::string_view key) const;
    std::string string(std::string_view key) const;
    JsonObject object(std::string_view key) const;
    const nlohmann::json& list(std::string_view key) const;

    // Once all is read that may be there: Error for a key that was not, with the nearest one that was.
    void expect_no_others() const;

    const nlohmann::json& value() const { return *value_; }
    const std::string& where() const { return where_; }

  private:
    [[noreturn]] void fail_missing(std::string_view key, std::string_view expected) const;
    [[noreturn]] void fail_type(std::string_view key, std::string_view expected) const;

    const nlohmann::json* value_;
    std::string where_;
    std::shared_ptr<std::vector<std::string>> read_ = std::make_shared<std::vector<std::string>>();
};

} // namespace tutti::formats

// A config.json read against a family's table of keys. The table says, per key, what kind of value it takes, what
// Transformers assumes where it is absent, and whether it matters; everything else about reading follows from it.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::models::huggingface {

enum class Kind {
    size,          // an integer from 1
    optional_size, // the same, or null
    layers,        // an integer from 1 to 10000
    count,         // an integer from 0
    token,         // an integer, or null
    real,          // a number from 0
    probability,   // a number in [0, 1)
    flag,          // true or false
    activation,    // a name that Builder::activation knows
    element_type,  // a name of a floating type, or null
    only,          // changes the computation, and no other value than the default (or null) is supported
    free,          // read by the family itself
    ignored,       // does not change the computation
};

struct Key {
    std::string name;
    Kind kind = Kind::ignored;
    nlohmann::json otherwise = {};         // Transformers' default; null where it has none
    std::string also = {};                 // another spelling
    std::vector<std::string> members = {}; // of an object: what it may hold; the rest is warned of
};
using Keys = std::vector<Key>;

Keys operator+(Keys a, const Keys& b);

class Config {
  public:
    // Error, naming key and value, where a value is not of its key's kind. Keys that are not known become warnings.
    Config(const nlohmann::json& values, std::string where, const Keys& keys);

    std::int64_t integer(std::string_view key) const;
    std::optional<std::int64_t> optional_integer(std::string_view key) const; // nullopt for null
    double real(std::string_view key) const;
    bool flag(std::string_view key) const;
    const std::string& text(std::string_view key) const;
    const nlohmann::json& value(std::string_view key) const; // given or default
    bool given(std::string_view key) const;                  // in the file, and not null

    // Error: "FILE: "key" is VALUE, but EXPECTATION".
    [[noreturn]] void reject(std::string_view key, std::string_view expectation) const;
    [[noreturn]] void reject(std::string_view key, const nlohmann::json& value, std::string_view expectation) const;

    const std::string& where() const { return where_; }
    const std::vector<std::string>& warnings() const { return warnings_; }

  private:
    struct Entry {
        nlohmann::json value;
        bool given = false;
        std::string spelling; // the name it was given under
    };

    void read(const Key& key, const nlohmann::json& values);
    const Entry& entry(std::string_view key) const;

    std::string where_;
    std::map<std::string, Entry, std::less<>> entries_;
    std::vector<std::string> warnings_;
};

} // namespace tutti::models::huggingface

// A table of a TOML file, read key by key with the type that is expected there. Every mistake is an Error with file,
// line and key; keys that nobody asked for are mistakes, too.
#pragma once

#include "costs/quantity.h"
#include "formats/toml.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tutti::costs {

class TomlReader {
  public:
    TomlReader(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

    std::optional<std::int64_t> find_integer(const std::string& key, std::int64_t least, std::int64_t most);
    std::optional<std::string> find_text(const std::string& key);
    // A text with a unit, or a number without, as machines have it (base/limits.h).
    std::optional<double> find_quantity(const std::string& key, Measure measure, bool may_be_zero = false);
    std::optional<double> find_share(const std::string& key); // at most 1
    const toml::table* find_table(const std::string& key);
    std::vector<const toml::table*> tables(const std::string& key); // [[key]], in order; empty where absent

    void finish() const; // Error naming a key that was not asked for, and the one that may have been meant
    [[noreturn]] void fail_at(const toml::node* node, const std::string& sentence) const;
    const toml::node* at(const std::string& key) const { return table_.get(key); }
    const toml::table& table() const { return table_; }
    const std::string& where() const { return where_; }

  private:
    const toml::node* find(const std::string& key);
    [[noreturn]] void fail_value(const std::string& key, const toml::node& node, std::string_view expected) const;

    const toml::table& table_;
    std::string where_;
    std::set<std::string> known_;
};

} // namespace tutti::costs

// Attributes: the constants of a node, by name. A plain value, printed and parsed as {dim=1, eps=1e-05}.
#pragma once

#include "base/dtype.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

class Attributes {
  public:
    using Entry = std::pair<std::string, Attribute>;

    Attributes() = default;
    Attributes(std::initializer_list<Entry> entries);

    bool has(std::string_view name) const { return find(name) != nullptr; }
    void set(std::string_view name, Attribute value);
    void erase(std::string_view name);

    // Absence or another kind of value is a defect of the program: the graph's verifier has checked them.
    bool flag(std::string_view name) const; // false where absent
    std::int64_t integer(std::string_view name) const;
    std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
    double real(std::string_view name) const;
    double real(std::string_view name, double otherwise) const;
    const std::string& text(std::string_view name) const;
    const std::vector<std::int64_t>& integers(std::string_view name) const;
    const std::vector<double>& reals(std::string_view name) const;
    DType dtype(std::string_view name) const; // held as its name

    const std::vector<Entry>& entries() const { return entries_; } // sorted by name
    bool operator==(const Attributes&) const = default;

  private:
    const Attribute* find(std::string_view name) const;
    template <class T>
    const T& get(std::string_view name) const;

    std::vector<Entry> entries_;
};

std::string to_string(const Attribute& attribute);
std::string to_string(const Attributes& attributes); // dim=1;eps=1e-05; in the order of names

} // namespace tutti

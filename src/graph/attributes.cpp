#include "graph/attributes.h"

#include "base/error.h"

#include <algorithm>

namespace tutti {

Attributes::Attributes(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) set(entry.first, entry.second);
}

const Attribute* Attributes::find(std::string_view name) const {
    const auto at = std::ranges::find(entries_, name, &Entry::first);
    return at == entries_.end() ? nullptr : &at->second;
}

void Attributes::set(std::string_view name, Attribute value) {
    const auto at = std::ranges::lower_bound(entries_, name, {}, &Entry::first);
    if (at != entries_.end() && at->first == name)
        at->second = std::move(value);
    else
        entries_.insert(at, {std::string(name), std::move(value)});
}

void Attributes::erase(std::string_view name) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; });
}

template <class T>
const T& Attributes::get(std::string_view name) const {
    const Attribute* found = find(name);
    TUTTI_CHECK(found != nullptr, "attribute {} is absent", name);
    const T* value = std::get_if<T>(found);
    TUTTI_CHECK(value != nullptr, "attribute {} holds {}", name, to_string(*found));
    return *value;
}

bool Attributes::flag(std::string_view name) const { return has(name) && get<bool>(name); }
std::int64_t Attributes::integer(std::string_view name) const { return get<std::int64_t>(name); }
std::int64_t Attributes::integer(std::string_view name, std::int64_t otherwise) const {
    return has(name) ? get<std::int64_t>(name) : otherwise;
}
double Attributes::real(std::string_view name) const { return get<double>(name); }
double Attributes::real(std::string_view name, double otherwise) const {
    return has(name) ? get<double>(name) : otherwise;
}
const std::string& Attributes::text(std::string_view name) const { return get<std::string>(name); }
const std::vector<std::int64_t>& Attributes::integers(std::string_view name) const {
    return get<std::vector<std::int64_t>>(name);
}
const std::vector<double>& Attributes::reals(std::string_view name) const { return get<std::vector<double>>(name); }

DType Attributes::dtype(std::string_view name) const {
    const auto parsed = parse_dtype(text(name));
    TUTTI_CHECK(parsed.has_value(), "attribute {} names no element type: {}", name, text(name));
    return *parsed;
}

namespace {

// Reals always show a point or an exponent, so that they parse back as reals; shortest form that round-trips.
std::string real_text(double value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

struct Printer {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return real_text(value); }
    std::string operator()(const std::string& value) const { return quoted(value); }
    std::string operator()(const std::vector<std::int64_t>& values) const {
        return fmt::format("[{}]", fmt::join(values, ","));
    }
    std::string operator()(const std::vector<double>& values) const {
        std::string out = "r[";
        for (std::size_t i = 0; i < values.size(); ++i) out += (i ? "," : "") + real_text(values[i]);
        return out + ']';
    }
};

} // namespace

std::string to_string(const Attribute& attribute) { return std::visit(Printer{}, attribute); }

std::string to_string(const Attributes& attributes) {
    std::string text;
    for (const auto& [name, value] : attributes.entries()) text += name + '=' + to_string(value) + ';';
    return text;
}

} // namespace tutti

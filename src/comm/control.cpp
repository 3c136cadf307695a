#include "comm/control.h"

#include "base/error.h"

#include <cstring>
#include <type_traits>

namespace tutti::comm {
namespace {

// Both visit the same fields, so that what is written and what is read cannot differ.
class Writer {
  public:
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
    void field(const T& value) {
        content.resize(content.size() + sizeof value);
        std::memcpy(content.data() + content.size() - sizeof value, &value, sizeof value);
    }
    template <class T>
    void size_of_list(const T& list) {
        field(static_cast<std::uint32_t>(list.size()));
    }

    std::vector<std::byte> content;
};

class Reader {
  public:
    explicit Reader(std::span<const std::byte> content) : rest_(content) {}

    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
    void field(T& value) {
        TUTTI_CHECK(rest_.size() >= sizeof value, "a control message ends early");
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_ = rest_.subspan(sizeof value);
    }
    template <class T>
    void size_of_list(T& list) {
        std::uint32_t size = 0;
        field(size);
        TUTTI_CHECK(size <= rest_.size(), "a control message names {} items in {} bytes", size, rest_.size());
        list.resize(size);
    }

  private:
    std::span<const std::byte> rest_;
};

template <class Visitor, class List>
void list(Visitor& visitor, List& items) {
    visitor.size_of_list(items);
    for (auto& item : items) visitor.field(item);
}

template <class Visitor, class Counts>
void counts(Visitor& visitor, Counts& value) {
    list(visitor, value.members);
    visitor.field(value.channel);
    visitor.field(value.collectives);
    list(visitor, value.sends);
    list(visitor, value.receives);
}

template <class Visitor, class Label>
void label(Visitor& visitor, Label& value) {
    list(visitor, value.group);
    list(visitor, value.members);
    visitor.field(value.channel);
    visitor.field(value.kind);
    visitor.field(value.sequence);
    visitor.field(value.bytes);
    visitor.field(value.rank);
    visitor.field(value.peer);
}

void label_if_any(Writer& writer, const std::optional<OperationLabel>& value) {
    writer.field(value.has_value());
    if (value) label(writer, *value);
}

void label_if_any(Reader& reader, std::optional<OperationLabel>& value) {
    bool is_there = false;
    reader.field(is_there);
    if (is_there) label(reader, value.emplace());
}

template <class Visitor, class T>
void fields(Visitor& visitor, T& value) {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Plain, Standing>) {
        visitor.size_of_list(value.counts);
        for (auto& one : value.counts) counts(visitor, one);
        label_if_any(visitor, value.late);
        label_if_any(visitor, value.awaited);
        list(visitor, value.complaint);
        list(visitor, value.silent);
    } else if constexpr (std::is_same_v<Plain, Verdict>) {
        list(visitor, value.failure.sentence);
        visitor.field(value.failure.status);
    }
}

} // namespace

std::vector<std::byte> encode(const Control& control) {
    Writer writer;
    writer.field(static_cast<std::uint8_t>(control.index()));
    std::visit([&](const auto& value) { fields(writer, value); }, control);
    return std::move(writer.content);
}

Control decode(std::span<const std::byte> content) {
    Reader reader(content);
    std::uint8_t kind = 0;
    reader.field(kind);
    Control control;
    switch (kind) {
    case 0: control = Standing{}; break;
    case 1: control = Verdict{}; break;
    case 2: control = Heard{}; break;
    case 3: control = Leaving{}; break;
    case 4: control = Ask{}; break;
    default: control = Here{};
    }
    std::visit([&](auto& value) { fields(reader, value); }, control);
    return control;
}

} // namespace tutti::comm

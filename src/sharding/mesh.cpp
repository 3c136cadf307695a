#include "sharding/mesh.h"

#include "base/error.h"
#include "formats/json.h"

#include <array>
#include <charconv>
#include <cstdint>

namespace tutti::sharding {
namespace {

struct Axis {
    std::string_view name, short_name; // the latter is read, too
    int Mesh::*size;
};
constexpr std::array<Axis, 3> axes = {
    {{"data", "dp", &Mesh::data}, {"pipe", "pp", &Mesh::pipe}, {"tensor", "tp", &Mesh::tensor}}};

int parse_size(std::string_view axis, std::string_view text) {
    int size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc{} || end != text.data() + text.size() || size < 1 || size > most_ranks)
        fail("in the mesh, {} is {}, and should be an integer from 1 to {}", axis, formats::in_quotes(text),
             most_ranks);
    return size;
}

const Axis& find_axis(std::string_view name) {
    for (const Axis& axis : axes)
        if (axis.name == name || axis.short_name == name) return axis;
    fail("a mesh has no axis {}; its axes are data, pipe and tensor", formats::in_quotes(name));
}

} // namespace

void check(const Mesh& mesh) {
    for (const Axis& axis : axes)
        if (mesh.*axis.size < 1 || mesh.*axis.size > most_ranks)
            fail("in the mesh, {} is {}; it has to be from 1 to {}", axis.name, mesh.*axis.size, most_ranks);
    if (std::int64_t{mesh.data} * mesh.pipe * mesh.tensor > most_ranks)
        fail("a mesh of {} has more than {} ranks", to_string(mesh), most_ranks);
}

Mesh parse_mesh(std::string_view text) {
    Mesh mesh;
    std::array<bool, axes.size()> given{};
    while (true) {
        const std::string_view word = text.substr(0, text.find(','));
        const std::size_t equals = word.find('=');
        if (equals == std::string_view::npos)
            fail("the mesh has {}, and should be made of axis=number, as in data=2,pipe=2,tensor=2",
                 formats::in_quotes(word));
        const Axis& axis = find_axis(word.substr(0, equals));
        bool& before = given[static_cast<std::size_t>(&axis - axes.data())];
        if (before) fail("the mesh gives {} twice", axis.name);
        before = true;
        mesh.*axis.size = parse_size(axis.name, word.substr(equals + 1));
        if (word.size() == text.size()) break;
        text.remove_prefix(word.size() + 1);
    }
    check(mesh);
    return mesh;
}

std::string to_string(const Mesh& mesh) {
    std::string text;
    for (const Axis& axis : axes)
        if (mesh.*axis.size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, mesh.*axis.size);
    return text.empty() ? "data=1" : text;
}

} // namespace tutti::sharding

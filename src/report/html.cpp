#include "report/html.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TimelineRow& row) {
    Json boxes = Json::array(), idle = Json::array(), held = Json::array();
    for (const Box& box : row.boxes)
        boxes.push_back({{"kind", name_of(box.kind)},
                         {"start", box.start},
                         {"end", box.end},
                         {"recomputing", box.recomputing},
                         {"stage", box.stage},
                         {"copy", box.copy},
                         {"micro_batch", box.micro_batch},
                         {"turn", box.turn}});
    for (const Idle& wait : row.idle)
        idle.push_back({{"start", wait.start}, {"end", wait.end}, {"cause", name_of(wait.cause)}});
    for (const Held& point : row.held) held.push_back({{"time", point.time}, {"activations", point.activations}});
    return {{"peak", row.peak}, {"busy", row.busy}, {"boxes", boxes}, {"idle", idle}, {"held", held}};
}

Json json_of(const Timeline& timeline) {
    Json facts = Json::array(), rows = Json::array();
    for (const auto& [name, value] : timeline.facts) facts.push_back(Json::array({name, value}));
    for (const TimelineRow& row : timeline.rows) rows.push_back(json_of(row));
    return {{"title", timeline.title},   {"facts", facts},        {"time", timeline.time},
            {"bubble", timeline.bubble}, {"peak", timeline.peak}, {"turns", timeline.turns},
            {"copies", timeline.copies}, {"rows", rows}};
}

} // namespace

std::string html_page(std::span<const Timeline> timelines) {
    Json list = Json::array();
    for (const Timeline& timeline : timelines) list.push_back(json_of(timeline));
    std::string data = Json{{"timelines", list}}.dump(-1, ' ', false, Json::error_handler_t::replace);
    // Inside a script element only a "<" could end it.
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
    static constexpr std::string_view mark = "/*DATA*/";
    const std::size_t place = page_template.find(mark);
    TUTTI_CHECK(place != std::string_view::npos, "the page has no place for its data");
    return std::string(page_template.substr(0, place)) + data + std::string(page_template.substr(place + mark.size()));
}

} // namespace tutti

#include "report/html.h"

#include "base/error.h"
#include "report/page_data.h"

namespace tutti::report {
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
                         {"copy", box.replica},
                         {"micro_batch", box.micro_batch},
                         {"turn", box.turn}});
    for (const Idle& wait : row.idle)
        idle.push_back({{"start", wait.start}, {"end", wait.end}, {"cause", name_of(wait.cause)}});
    for (const Held& point : row.held) held.push_back({{"time", point.time}, {"activations", point.activations}});
    return {{"peak", row.peak}, {"busy", row.busy}, {"boxes", boxes}, {"idle", idle}, {"held", held}};
}

// Of the first that is there.
void replace_mark(std::string& page, std::string_view mark, std::string_view text) {
    const std::size_t place = page.find(mark);
    TUTTI_CHECK(place != std::string::npos, "the page has no {}", mark);
    page.replace(place, mark.size(), text);
}

} // namespace

Json json_of(const Timeline& timeline) {
    Json facts = Json::array(), rows = Json::array();
    for (const auto& [name, value] : timeline.facts) facts.push_back(Json::array({name, value}));
    for (const TimelineRow& row : timeline.rows) rows.push_back(json_of(row));
    return {{"title", timeline.title},           {"facts", facts},        {"time", timeline.time},
            {"bubble", timeline.bubble},         {"peak", timeline.peak}, {"turns", timeline.turns},
            {"copies", timeline.model_replicas}, {"rows", rows}};
}

std::string make_page(const Json& data, std::string_view more) {
    std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
    // Inside a script element only a "<" could end it.
    for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
    std::string page(page_template);
    replace_mark(page, "<!--MORE-->", more); // behind the data, which may say anything
    replace_mark(page, "/*DATA*/", text);
    return page;
}

std::string html_page(std::span<const Timeline> timelines) {
    Json list = Json::array();
    for (const Timeline& timeline : timelines) list.push_back(json_of(timeline));
    return make_page(Json{{"timelines", list}}, "");
}

} // namespace tutti::report

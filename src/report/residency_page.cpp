#include "report/residency_page.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

namespace tutti::report {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ResidencyPicture::Row& row) {
    Json intervals = Json::array();
    for (const ResidencyPicture::ResidencyInterval& interval : row.intervals)
        intervals.push_back(
            {interval.issue, interval.from, interval.to, interval.fetched, interval.returned, interval.always});
    return {{"name", row.name},
            {"bytes", row.size.count},
            {"home", row.tier},
            {"stays", intervals},
            {"at_home", row.on_host}};
}

} // namespace

std::string residency_page(const ResidencyPicture& picture) {
    Json facts = Json::array(), rows = Json::array();
    for (const auto& [name, value] : picture.facts) facts.push_back(Json::array({name, value}));
    for (const ResidencyPicture::Row& row : picture.rows) rows.push_back(json_of(row));
    std::string data =
        Json{{"title", picture.title},         {"facts", facts}, {"starts", picture.starts}, {"tasks", picture.tasks},
             {"budget", picture.budget.count}, {"rows", rows}}
            .dump(-1, ' ', false, Json::error_handler_t::replace);
    // Inside a script element only a "<" could end it.
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
    static constexpr std::string_view mark = "/*DATA*/";
    const std::size_t place = residency_template.find(mark);
    TUTTI_CHECK(place != std::string_view::npos, "the page has no place for its data");
    return std::string(residency_template.substr(0, place)) + data +
           std::string(residency_template.substr(place + mark.size()));
}

} // namespace tutti::report

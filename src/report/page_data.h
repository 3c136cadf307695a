// How pages are put together: page.html with data in it, and what is to be drawn besides timelines.
#pragma once

#include "report/timeline.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace tutti::report {

nlohmann::ordered_json json_of(const Timeline& timeline);

// `more` is HTML, after the page's own script.
std::string make_page(const nlohmann::ordered_json& data, std::string_view more);

} // namespace tutti::report

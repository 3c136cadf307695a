#include "report/chrome_events.h"

namespace tutti::report {

using Json = nlohmann::ordered_json;

void add_process(ChromeEvents& events, int process, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    events.push_back(
        {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", process}, {"args", {{"sort_index", process}}}});
}

void add_track(ChromeEvents& events, int process, int track, const std::string& name) {
    auto add = [&](const char* what, const Json& arguments) {
        events.push_back({{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", track}, {"args", arguments}});
    };
    add("thread_name", {{"name", name}});
    add("thread_sort_index", {{"sort_index", track}});
}

void add_slice(ChromeEvents& events, const ChromeSlice& slice) {
    Json event = {{"ph", "X"},          {"name", slice.name}, {"cat", slice.category},         {"pid", slice.process},
                  {"tid", slice.track}, {"ts", slice.start},  {"dur", slice.end - slice.start}};
    if (!slice.arguments.is_null()) event["args"] = slice.arguments;
    events.push_back(std::move(event));
}

std::string chrome_file(ChromeEvents events, Json other) {
    Json trace = {{"displayTimeUnit", "ms"}};
    if (!other.is_null()) trace["otherData"] = std::move(other);
    trace["traceEvents"] = std::move(events);
    return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

} // namespace tutti::report

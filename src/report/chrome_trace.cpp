#include "report/chrome_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr double microseconds = 1000; // per unit of the costs
constexpr int compute_lane = 0, waiting_lane = 1;

Json lane_name(int process, int lane, const std::string& name) {
    return {{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", lane}, {"args", {{"name", name}}}};
}

Json complete(int process, int lane, const std::string& name, std::string_view category, double start, double end) {
    return {{"ph", "X"},
            {"name", name},
            {"cat", category},
            {"pid", process},
            {"tid", lane},
            {"ts", start * microseconds},
            {"dur", (end - start) * microseconds}};
}

void add_row(Json& events, const TimelineRow& row, int process, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    events.push_back(
        {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", process}, {"args", {{"sort_index", process}}}});
    events.push_back(lane_name(process, compute_lane, "compute"));
    events.push_back(lane_name(process, waiting_lane, "waiting"));
    for (const Box& box : row.boxes) {
        const bool update = box.kind == BoxKind::update;
        Json event =
            complete(process, compute_lane, update ? "update" : fmt::format("{}{}", name_of(box.kind), box.micro_batch),
                     description_of(box.kind), box.start, box.end);
        if (!update) event["args"] = {{"stage", box.stage}, {"copy", box.copy}, {"micro_batch", box.micro_batch}};
        if (box.recomputing > 0) event["args"]["recomputing"] = box.recomputing;
        events.push_back(event);
    }
    for (const Idle& idle : row.idle)
        events.push_back(
            complete(process, waiting_lane, std::string(name_of(idle.cause)), "waiting", idle.start, idle.end));
    for (const Held& held : row.held)
        events.push_back({{"ph", "C"},
                          {"name", "live activations"},
                          {"pid", process},
                          {"ts", held.time * microseconds},
                          {"args", {{"activations", held.activations}}}});
}

} // namespace

std::string chrome_trace(std::span<const Timeline> timelines) {
    Json events = Json::array();
    int process = 0;
    for (const Timeline& timeline : timelines)
        for (std::size_t r = 0; r < timeline.rows.size(); ++r)
            add_row(events, timeline.rows[r], process++,
                    timelines.size() > 1 ? fmt::format("{} rank {}", timeline.title, r) : fmt::format("rank {}", r));
    const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
    return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

} // namespace tutti

#include "report/chrome_trace.h"

#include "report/chrome_events.h"

#include <fmt/format.h>

namespace tutti::report {
namespace {

constexpr double microseconds = 1000; // per unit of the costs
constexpr int compute_track = 0, waiting_track = 1;

void add_row(ChromeEvents& events, const TimelineRow& row, int process, const std::string& name) {
    add_process(events, process, name);
    add_track(events, process, compute_track, "compute");
    add_track(events, process, waiting_track, "waiting");
    for (const Box& box : row.boxes) {
        const bool update = box.kind == BoxKind::update;
        ChromeSlice slice{.process = process,
                          .track = compute_track,
                          .name = update ? "update" : fmt::format("{}{}", name_of(box.kind), box.micro_batch),
                          .category = description_of(box.kind),
                          .start = box.start * microseconds,
                          .end = box.end * microseconds};
        if (!update) slice.arguments = {{"stage", box.stage}, {"copy", box.replica}, {"micro_batch", box.micro_batch}};
        if (box.recomputing > 0) slice.arguments["recomputing"] = box.recomputing;
        add_slice(events, slice);
    }
    for (const Idle& idle : row.idle)
        add_slice(events, {.process = process,
                           .track = waiting_track,
                           .name = std::string(name_of(idle.cause)),
                           .category = "waiting",
                           .start = idle.start * microseconds,
                           .end = idle.end * microseconds});
    for (const Held& held : row.held)
        events.push_back({{"ph", "C"},
                          {"name", "live activations"},
                          {"pid", process},
                          {"ts", held.time * microseconds},
                          {"args", {{"activations", held.activations}}}});
}

} // namespace

std::string chrome_trace(std::span<const Timeline> timelines) {
    ChromeEvents events = ChromeEvents::array();
    int process = 0;
    for (const Timeline& timeline : timelines)
        for (std::size_t r = 0; r < timeline.rows.size(); ++r)
            add_row(events, timeline.rows[r], process++,
                    timelines.size() > 1 ? fmt::format("{} rank {}", timeline.title, r) : fmt::format("rank {}", r));
    return chrome_file(std::move(events));
}

} // namespace tutti::report

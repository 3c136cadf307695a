#include "cli/pictures.h"

#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"
#include "report/chrome_trace.h"
#include "report/html.h"
#include "report/terminal.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"

#include <vector>

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

Json parameters_json(const EvaluatedSchedule& evaluated) {
    const schedule::ScheduleParameters& p = evaluated.schedule.parameters;
    Json recompute = Json::array(), stages = Json::array();
    for (const schedule::Recompute one : p.recompute) recompute.push_back(schedule::name_of(one));
    for (const schedule::StageCosts& stage : evaluated.costs.stages)
        stages.push_back({{"f", stage.forward},
                          {"b", stage.backward},
                          {"w", stage.weight_gradient},
                          {"r", stage.recompute},
                          {"a", stage.activation},
                          {"kept", stage.kept_after_backward},
                          {"input", stage.boundary},
                          {"sync", stage.synchronise},
                          {"update", stage.update}});
    return {{"family", p.family},
            {"pipe", p.ranks},
            {"micro_batches", p.micro_batches},
            {"stages_per_rank", p.stages_per_rank},
            {"copies", p.model_replicas},
            {"placement", schedule::name_of(p.placement)},
            {"in_flight", p.in_flight},
            {"split_backward", p.split_backward},
            {"deferred_weight_gradients", p.deferred_weight_gradients},
            {"group", p.group},
            {"recompute", recompute},
            {"memory", p.memory_cap > 0 ? Json(p.memory_cap) : Json(nullptr)},
            {"blocking", evaluated.costs.blocking},
            {"stage_costs", stages},
            {"comm", evaluated.costs.communication}};
}

} // namespace

CLI::Option* add_colour_flag(CLI::App& app) {
    return add_value(app, "--colour", "WHEN", "auto, always or never", "auto");
}

bool wants_colours(const CLI::Option* colour) {
    const std::string when = text_of(colour).value_or("auto");
    if (when != "auto" && when != "always" && when != "never")
        fail("--colour is {}; it can be auto, always or never", formats::in_quotes(when));
    return when == "always" || (when == "auto" && terminal::terminal_has_colours());
}

PictureFlags add_picture_flags(CLI::App& app) {
    PictureFlags flags{};
    flags.html = add_value(app, "--html", "FILE", "write a page with the timeline, to zoom and point at");
    flags.trace = add_value(app, "--trace", "FILE", "write a Chrome trace, for ui.perfetto.dev");
    flags.colour = add_colour_flag(app);
    flags.json = add_flag(app, "--json", "JSON instead of a picture");
    return flags;
}

void add_picture_files(const PictureFlags& flags, UsedFiles& files) {
    files.writes(flags.html);
    files.writes(flags.trace);
}

Json json_of(const EvaluatedSchedule& evaluated) {
    const schedule::Schedule& schedule = evaluated.schedule;
    const schedule::Evaluation& evaluation = evaluated.evaluation;
    Json window_idle = Json::array(), peaks = Json::array(), tasks = Json::array();
    for (const schedule::RankEvaluation& rank : evaluation.ranks) {
        window_idle.push_back(rank.window_idle);
        peaks.push_back(rank.peak_activations);
    }
    for (int r = 0; r < schedule.ranks(); ++r) {
        for (std::int32_t i = schedule.first[r]; i < schedule.first[r + 1]; ++i) {
            const schedule::ScheduledTask& task = schedule.tasks[i];
            tasks.push_back({{"rank", r},
                             {"kind", schedule::name_of(task.work)},
                             {"stage", task.stage},
                             {"copy", task.replica},
                             {"micro_batch", task.micro_batch},
                             {"start", evaluation.start[i]},
                             {"end", evaluation.end[i]}});
        }
    }
    return {{"parameters", parameters_json(evaluated)},
            {"time", evaluation.time},
            {"bubble", evaluation.bubble},
            {"window_idle", window_idle},
            {"peak_activations", peaks},
            {"tasks", tasks}};
}

void show(std::span<const EvaluatedSchedule> schedules, const PictureFlags& flags, const std::string& note) {
    const bool colours = wants_colours(flags.colour);
    const auto html = text_of(flags.html), trace = text_of(flags.trace);
    std::vector<report::Timeline> timelines;
    for (const EvaluatedSchedule& one : schedules) {
        timelines.push_back(report::make_timeline(one.schedule, one.costs, one.evaluation));
        if (!one.title.empty()) timelines.back().title = one.title;
        if (!one.units.empty()) timelines.back().facts.emplace_back("in", one.units);
    }
    if (html) write_text_atomically(*html, report::html_page(timelines));
    if (trace) write_text_atomically(*trace, report::chrome_trace(timelines));
    if (is_set(flags.json)) {
        Json json = json_of(schedules[0]);
        if (schedules.size() > 1) json["against"] = json_of(schedules[1]);
        terminal::print(terminal::json_to_show(json));
        return;
    }
    std::string text =
        report::terminal_picture(timelines, {.columns = terminal::terminal_columns(), .colours = colours});
    if (timelines.size() == 2 && timelines[0].time > 0 && timelines[1].time > 0) {
        const bool second = timelines[1].time < timelines[0].time;
        const report::Timeline &fast = timelines[second ? 1 : 0], &slow = timelines[second ? 0 : 1];
        text += fast.time == slow.time ? fmt::format("\n{} and {} take the same time\n", fast.title, slow.title)
                                       : fmt::format("\n{} is {:.2f} times as fast as {}\n", fast.title,
                                                     slow.time / fast.time, slow.title);
    }
    if (!note.empty()) text += "\n" + note + "\n";
    if (html) text += fmt::format("\npage: {}\n", terminal::name_to_show(*html));
    if (trace) text += fmt::format("{}trace: {}\n", html ? "" : "\n", terminal::name_to_show(*trace));
    terminal::print(text);
}

} // namespace tutti::cli

// tutti report: a traced step of a run beside the simulated one.

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/pictures.h"
#include "report/comparison.h"
#include "report/html.h"
#include "report/terminal.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <array>
#include <cmath>
#include <memory>

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReportCommandFlags {
    CLI::Option *run = nullptr, *html = nullptr, *json = nullptr, *tasks = nullptr, *colour = nullptr;
};

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }

std::string percent(const report::Compared& compared) {
    return std::isfinite(compared.share()) ? fmt::format("{:+.0f}%", 100 * compared.share()) : "-";
}

std::vector<std::string> cells(std::vector<std::string> first, const report::Compared& compared) {
    first.push_back(milliseconds(compared.measured));
    first.push_back(milliseconds(compared.simulated));
    first.push_back(fmt::format("{:+.3f}", 1e3 * compared.difference()));
    first.push_back(percent(compared));
    return first;
}

std::string kinds_table(const report::Comparison& comparison) {
    std::vector<std::vector<std::string>> table = {
        {"rank", "work", "count", "measured ms", "simulated ms", "difference", ""}};
    for (std::size_t i = 0; i < comparison.kinds.size(); ++i) {
        const report::ComparedKind& kind = comparison.kinds[i];
        const bool first = i == 0 || comparison.kinds[i - 1].rank != kind.rank;
        const bool last = i + 1 == comparison.kinds.size() || comparison.kinds[i + 1].rank != kind.rank;
        table.push_back(
            cells({first ? std::to_string(kind.rank) : "", report::short_name(kind.kind), std::to_string(kind.count)},
                  kind.time));
        if (last) table.push_back(cells({"", "waiting", ""}, comparison.waiting[static_cast<std::size_t>(kind.rank)]));
    }
    return terminal::lay_out(table, std::array<std::size_t, 5>{2, 3, 4, 5, 6});
}

std::string tasks_table(const report::Comparison& comparison) {
    std::vector<std::vector<std::string>> table = {
        {"rank", "task", "start ms", "simulated", "measured ms", "simulated ms", "difference", ""}};
    for (const report::ComparedTask& task : comparison.tasks)
        table.push_back(cells({std::to_string(task.rank), report::name_of(task.task), milliseconds(task.start.measured),
                               milliseconds(task.start.simulated)},
                              task.duration));
    return terminal::lay_out(table, std::array<std::size_t, 6>{2, 3, 4, 5, 6, 7});
}

Json json_of(const report::Compared& compared) {
    return {{"measured", compared.measured}, {"simulated", compared.simulated}};
}

Json json_of(const report::RunTrace& trace, const report::Comparison& comparison) {
    Json kinds = Json::array(), tasks = Json::array(), waiting = Json::array(), steps = Json::array();
    for (const report::TracedStep& step : trace.steps)
        steps.push_back({{"step", step.step}, {"time", step.duration()}});
    for (const report::ComparedKind& kind : comparison.kinds)
        kinds.push_back({{"rank", kind.rank},
                         {"kind", name_of(kind.kind)},
                         {"count", kind.count},
                         {"measured", kind.time.measured},
                         {"simulated", kind.time.simulated}});
    for (const report::ComparedTask& task : comparison.tasks)
        tasks.push_back({{"rank", task.rank},
                         {"kind", name_of(task.task.kind)},
                         {"stage", task.task.stage},
                         {"copy", task.task.replica},
                         {"micro_batch", task.task.micro_batch},
                         {"start", json_of(task.start)},
                         {"duration", json_of(task.duration)}});
    for (const report::Compared& rank : comparison.waiting) waiting.push_back(json_of(rank));
    return {{"model", trace.model},
            {"mesh", trace.mesh},
            {"schedule", trace.schedule},
            {"device", trace.device},
            {"ranks", trace.ranks()},
            {"steps", steps},
            {"step", comparison.step},
            {"time", json_of(comparison.time)},
            {"bubble", json_of(comparison.bubble)},
            {"waiting", waiting},
            {"kinds", kinds},
            {"tasks", tasks}};
}

std::string heading(const report::RunTrace& trace, const report::Comparison& comparison) {
    std::string text = fmt::format("{}, {}", terminal::name_to_show(trace.model), terminal::name_to_show(trace.mesh));
    if (!trace.schedule.empty()) text += ", " + terminal::name_to_show(trace.schedule);
    text += fmt::format(", on {}\n", terminal::name_to_show(trace.device));
    std::string steps;
    for (const report::TracedStep& step : trace.steps)
        steps +=
            fmt::format("{}step {} took {}", steps.empty() ? "" : ", ", step.step, to_string(Seconds{step.duration()}));
    text += fmt::format("{}; step {} is shown, the median\n", steps, comparison.step);
    text += fmt::format("timed at start, all ranks at work: {:.3g} Gflop/s, {:.3g} GB/s, {:.3g} us per kernel",
                        trace.kernels.flops * 1e-9, trace.kernels.bytes * 1e-9, trace.kernels.launch * 1e6);
    if (trace.ranks() > 1)
        text += fmt::format("; messages {:.3g} us and {:.3g} GB/s, sums {:.3g} GB/s, gathering {:.3g} GB/s",
                            trace.link.latency * 1e6, trace.link.bytes * 1e-9, trace.link.reduced_bytes * 1e-9,
                            trace.link.gathered_bytes * 1e-9);
    return text + "\n\n";
}

int run_report(const ReportCommandFlags& flags) {
    const auto place = text_of(flags.run);
    if (!place) fail("report on what? as in tutti report runs/first, or tutti report trace.json");
    const bool colours = wants_colours(flags.colour);
    const report::RunTrace trace = report::read_run_trace(*place);
    UsedFiles files;
    const bool in_folder = is_folder(*place);
    files.reads("the trace", in_folder ? fs::path(*place) / "trace.json" : fs::path(*place));
    files.writes(flags.html);
    const report::Comparison comparison = report::compare(trace);
    const std::array timelines = {comparison.measured, comparison.simulated};
    std::string page = text_of(flags.html).value_or("");
    if (page.empty() && in_folder) page = (fs::path(*place) / "report.html").string();
    if (!page.empty()) write_text_atomically(page, report::html_page(timelines));
    if (is_set(flags.json)) {
        terminal::print(terminal::json_to_show(json_of(trace, comparison)));
        return 0;
    }
    std::string text = heading(trace, comparison);
    text += report::terminal_picture(timelines, {.columns = terminal::terminal_columns(), .colours = colours}) + '\n';
    text += (is_set(flags.tasks) ? tasks_table(comparison) : kinds_table(comparison)) + '\n';
    text += fmt::format("step: {} ms measured, {} ms simulated ({}); bubble {:.1f}% measured, {:.1f}% simulated\n",
                        milliseconds(comparison.time.measured), milliseconds(comparison.time.simulated),
                        percent(comparison.time), 100 * comparison.bubble.measured, 100 * comparison.bubble.simulated);
    if (!page.empty()) text += fmt::format("page: {}\n", terminal::name_to_show(page));
    terminal::print(text);
    return 0;
}

} // namespace

Command report_command() {
    Command command;
    command.name = "report";
    command.summary = "show a traced step of a run beside the simulated one";
    command.usage = "RUN [options]";
    command.about =
        "Reads the trace that tutti train --trace wrote, and puts the measured step beside the one that was simulated "
        "from kernels and messages timed when the run began, with all ranks at work: pictures of both, and a table of "
        "what "
        "every rank did, with the difference. RUN is a trace, or the folder of a run that holds trace.json; then a "
        "page with both is written there as report.html.";
    command.examples = "tutti train gpt2-tiny --mesh pipe=2 --output runs/a --trace runs/a/trace.json\n"
                       "tutti report runs/a";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<ReportCommandFlags>();
        flags->run = add_value(app, "run", "RUN", "a trace, or the folder of a run with a trace.json");
        flags->tasks = add_flag(app, "--tasks", "every task, not only sums by kind of work");
        flags->html = add_value(app, "--html", "FILE", "write the page here");
        flags->colour = add_colour_flag(app);
        flags->json = add_flag(app, "--json", "JSON instead of pictures and tables; in seconds");
        return [flags] { return run_report(*flags); };
    };
    return command;
}

} // namespace tutti::cli

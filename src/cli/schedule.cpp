// tutti schedule: makes a pipeline schedule, evaluates it and shows it; compares families; lists them.

#include "base/error.h"
#include "base/file.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/pictures.h"
#include "cli/schedule_options.h"
#include "formats/json.h"
#include "plan/plan.h"
#include "schedule/families.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ScheduleCommandFlags {
    const CLI::App* app = nullptr; // that they all are of
    std::vector<std::string> words{};
    CLI::Option *against = nullptr, *plan = nullptr;
    ScheduleFlags schedule{};
    PictureFlags picture{};
};

std::string checked_family(const std::string& name) {
    std::vector<std::string> names;
    for (const schedule::Family& family : schedule::families()) names.emplace_back(family.name);
    if (std::ranges::find(names, name) != names.end()) return name;
    const std::string hint = suggestion(name, names);
    fail("there is no schedule family {}{}", formats::in_quotes(name),
         hint.empty() ? "; tutti schedule list shows them" : hint);
}

EvaluatedSchedule make(const ScheduleRequest& request, const schedule::ScheduleParameters& parameters, bool splits) {
    EvaluatedSchedule made;
    made.costs = costs_for(request, parameters, splits);
    made.schedule = schedule::make_schedule(parameters, made.costs);
    made.evaluation = schedule::evaluate(made.schedule, made.costs);
    if (!std::isfinite(made.evaluation.time)) fail("with these costs a step takes longer than a number can say");
    return made;
}

// As much of a plan as a schedule has.
Plan plan_of(const EvaluatedSchedule& made) {
    Plan plan;
    plan.model = Plan::no_model;
    plan.workload = {.sequence = 1, .global_batch = made.schedule.parameters.micro_batches, .micro_batch = 1};
    plan.mesh.pipe = made.schedule.parameters.ranks;
    plan.schedule = PlannedSchedule{made.schedule, made.costs};
    return plan;
}

int show_families(const std::vector<std::string>& names, const ScheduleCommandFlags& flags) {
    const ScheduleRequest request = read_schedule_flags(flags.schedule);
    UsedFiles files;
    files.writes_plan(flags.plan);
    add_picture_files(flags.picture, files);
    std::vector<schedule::ScheduleParameters> parameters;
    for (const std::string& name : names) parameters.push_back(parameters_for(request, name));
    const bool splits = std::ranges::any_of(parameters, &schedule::ScheduleParameters::split_backward);
    std::vector<EvaluatedSchedule> made;
    for (const schedule::ScheduleParameters& one : parameters) made.push_back(make(request, one, splits));
    if (const auto file = text_of(flags.plan)) {
        if (made.size() > 1) fail("a plan has one schedule; --plan and --against do not go together");
        write_text_atomically(*file, to_json(plan_of(made[0])));
    }
    std::string note;
    if (!splits && request.gives("w") && request.costs.at("w") != std::vector<double>{0})
        note = "w is not used: where the backward is not split, b is the whole of it";
    show(made, flags.picture, note);
    return 0;
}

int list(const ScheduleCommandFlags& flags) {
    for (const CLI::Option* option : flags.app->get_options())
        if (option->count() > 0 && !option->get_positional() && option != flags.picture.json)
            fail("tutti schedule list shows all families and takes no {}; --json is the only option that goes with it",
                 option->get_name());
    if (is_set(flags.picture.json)) {
        Json all = Json::array();
        for (const schedule::Family& family : schedule::families())
            all.push_back({{"family", family.name}, {"description", family.description}, {"needs", family.needs}});
        terminal::print(all.dump(2) + '\n');
        return 0;
    }
    std::vector<terminal::Definition> lines;
    for (const schedule::Family& family : schedule::families()) {
        std::string text(family.description);
        if (!family.needs.empty()) text += fmt::format(" ({})", family.needs);
        lines.push_back({std::string(family.name), terminal::split(text, ' ')});
    }
    terminal::print(
        terminal::define(lines, std::clamp<std::size_t>(terminal::terminal_columns(), 60, 120), {2, 30, " "}));
    return 0;
}

// A family in the table: what it comes to, or why it does not exist for these parameters.
struct Entry {
    std::string family;
    std::string reason{};
    double time = 0, bubble = 0, peak = 0, weights = 0;
    std::size_t messages = 0;
};

// Stages that the fullest rank has, of all model replicas, in those of one replica.
double weights_held(const schedule::ScheduleParameters& p) {
    std::vector<int> stages(static_cast<std::size_t>(p.ranks), 0);
    for (int replica = 0; replica < p.model_replicas; ++replica)
        for (int s = 0; s < p.stages(); ++s) ++stages[static_cast<std::size_t>(schedule::rank_of(p, replica, s))];
    return static_cast<double>(*std::ranges::max_element(stages)) / p.stages_per_rank;
}

std::vector<Entry> compared(const ScheduleRequest& request, const std::vector<std::string>& names, bool& splits) {
    std::vector<Entry> entries;
    std::vector<schedule::ScheduleParameters> parameters;
    for (const std::string& name : names) {
        entries.push_back({.family = name});
        parameters.emplace_back();
        try {
            parameters.back() = parameters_for(request, name);
        } catch (const Error& error) {
            entries.back().reason = error.what();
        }
    }
    splits = std::ranges::any_of(parameters, &schedule::ScheduleParameters::split_backward);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (!entries[i].reason.empty()) continue;
        try {
            const EvaluatedSchedule made = make(request, parameters[i], splits);
            entries[i].time = made.evaluation.time;
            entries[i].bubble = made.evaluation.bubble;
            entries[i].peak = made.evaluation.peak_activations();
            entries[i].weights = weights_held(made.schedule.parameters);
            entries[i].messages = schedule::messages(made.schedule).size();
        } catch (const Error& error) {
            entries[i].reason = error.what();
        }
    }
    std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
        return std::pair(!a.reason.empty(), a.time) < std::pair(!b.reason.empty(), b.time);
    });
    return entries;
}

int compare(std::vector<std::string> names, const ScheduleCommandFlags& flags) {
    const ScheduleRequest request = read_schedule_flags(flags.schedule);
    if (text_of(flags.picture.html) || text_of(flags.picture.trace) || text_of(flags.against) || text_of(flags.plan))
        fail("compare gives a table; for a page with two schedules: tutti schedule FAMILY --against FAMILY2 --html "
             "FILE");
    if (names.empty())
        for (const schedule::Family& family : schedule::families()) names.emplace_back(family.name);
    bool splits = false;
    const std::vector<Entry> entries = compared(request, names, splits);
    if (!entries.front().reason.empty()) fail("no family exists for these parameters: {}", entries.front().reason);
    if (is_set(flags.picture.json)) {
        Json all = Json::array();
        for (const Entry& entry : entries) {
            if (!entry.reason.empty()) {
                all.push_back({{"family", entry.family}, {"reason", entry.reason}});
                continue;
            }
            all.push_back({{"family", entry.family},
                           {"time", entry.time},
                           {"bubble", entry.bubble},
                           {"peak_activations", entry.peak},
                           {"weights", entry.weights},
                           {"messages", entry.messages}});
        }
        terminal::print(Json{{"pipe", request.parameters.ranks},
                             {"micro_batches", request.parameters.micro_batches},
                             {"families", all}}
                            .dump(2) +
                        '\n');
        return 0;
    }
    std::vector<std::vector<std::string>> table = {{"family", "time", "bubble", "activations", "weights", "messages"}};
    std::vector<terminal::Definition> absent;
    for (const Entry& entry : entries) {
        if (entry.reason.empty())
            table.push_back({entry.family, report::plain_number(entry.time), fmt::format("{:.1f}%", 100 * entry.bubble),
                             report::plain_number(entry.peak), report::plain_number(entry.weights),
                             std::to_string(entry.messages)});
        else
            absent.push_back({entry.family, terminal::split(entry.reason, ' ')});
    }
    std::string text = terminal::lay_out(table, std::array<std::size_t, 5>{1, 2, 3, 4, 5});
    text += "\nactivations: the most that a rank holds, in those of its whole share for one micro-batch;\n"
            "weights: what a rank holds, in its share of the model; messages between ranks, in a step\n";
    if (splits) text += "where the backward is not split, it takes b + w\n";
    if (!absent.empty())
        text += "\nnot for these parameters:\n" +
                terminal::define(absent, std::clamp<std::size_t>(terminal::terminal_columns(), 60, 120), {2, 30, " "});
    terminal::print(text);
    return 0;
}

int run_schedule(const ScheduleCommandFlags& flags) {
    std::vector<std::string> words = flags.words;
    if (words.empty())
        fail("which family? as in tutti schedule 1f1b --pipe 4 --micro-batches 8; tutti schedule list shows them");
    const std::string first = words[0];
    if (first == "list" || first == "compare") words.erase(words.begin());
    for (const std::string& word : words) checked_family(word);
    if (first == "compare") return compare(words, flags);
    if (first == "list") {
        if (!words.empty()) fail("{} is one argument too many for tutti schedule list", formats::in_quotes(words[0]));
        return list(flags);
    }
    if (words.size() > 1)
        fail("{} is one argument too many for tutti schedule; a second family goes after --against, more of them after "
             "tutti schedule compare",
             formats::in_quotes(words[1]));
    if (const auto other = text_of(flags.against)) words.push_back(checked_family(*other));
    return show_families(words, flags);
}

} // namespace

Command schedule_command() {
    Command command;
    command.name = "schedule";
    command.summary = "make, draw and compare pipeline schedules";
    command.usage = "FAMILY | compare [FAMILIES] | list --pipe P --micro-batches M [options]";
    command.about =
        "Makes the schedule of a family for P ranks and M micro-batches, computes when every task starts and "
        "ends and what every rank holds, and draws it. With compare: a table of families. With list: what "
        "families there are.";
    command.notes = cost_notes;
    command.examples = "tutti schedule 1f1b --pipe 4 --micro-batches 8\n"
                       "tutti schedule 1f1b --against shifted-critical-path --pipe 4 --micro-batches 8 \\\n"
                       "    --costs f=1,b=2,r=1 --html page.html\n"
                       "tutti schedule compare --pipe 4 --micro-batches 8 --memory 4\n"
                       "tutti schedule list";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<ScheduleCommandFlags>();
        flags->app = &app;
        app.add_option("family", flags->words, "a family, or compare, or list")->type_name("FAMILY");
        flags->against = add_value(app, "--against", "FAMILY", "a second one, on the same time axis");
        flags->schedule = add_schedule_flags(app);
        flags->picture = add_picture_flags(app);
        flags->plan = add_value(app, "--plan", "FILE", "write a plan with this schedule, for tutti simulate");
        return [flags] { return run_schedule(*flags); };
    };
    return command;
}

} // namespace tutti::cli

// tutti train: flags and a config file to a RunConfig, the run itself, and what is said at its end.

#include "base/counted.h"
#include "base/error.h"
#include "choose/automatic.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/sample.h"
#include "comm/agree.h"
#include "cores/topology.h"
#include "devices/devices.h"
#include "launch/bound_rank.h"
#include "launch/ranks.h"
#include "launch/stop_signals.h"
#include "models/model.h"
#include "resolve/asked.h"
#include "resolve/run_plan.h"
#include "run/flags_page.h"
#include "run/foreign_names.h"
#include "run/kept_config.h"
#include "run/run_folder.h"
#include "run/run_options.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"
#include "train/generate.h"
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

namespace tutti::cli {
namespace {

struct TrainFlags {
    std::vector<OptionNames> run; // one per run option
    CLI::Option* config = nullptr;
    CLI::Option* json = nullptr;
    CLI::Option* help_markdown = nullptr;
};

resolve::GivenOptions given_in(const TrainFlags& flags) {
    resolve::GivenOptions given{.config = text_of(flags.config)};
    for (const OptionNames& names : flags.run) {
        const CLI::Option* flag = given_of(names);
        given.flags.push_back(text_of(flag));
        given.names.push_back(name_of(*flag));
    }
    return given;
}

// The model is shown at work where its tokens are bytes. Its folder is read anew: so it is seen to be whole.
std::optional<std::string> sample_of(const run::TrainResult& result, const run::RunConfig& config,
                                     std::int64_t sequence) {
    if (result.model_folder.empty()) return std::nullopt;
    const models::ModelFacts facts = models::open_model(result.model_folder).facts();
    if (!facts.causal || facts.vocabulary != 256) return std::nullopt;
    train::GenerateConfig generation;
    generation.model = result.model_folder;
    generation.prompt = tokens_of_bytes(config.data == "builtin" ? "Once upon a time" : "\n");
    generation.tokens = 200;
    generation.seed = config.seed;
    generation.sequence = sequence; // places beyond those trained on are noise
    generation.threads = config.threads;
    std::string text = config.data == "builtin" ? "Once upon a time" : "";
    train::generate(generation, [&](std::int64_t token) {
        text += static_cast<char>(token);
        return !launch::stop_requested();
    });
    return terminal::safe_to_show(text);
}

// What was taken beside what the tables said: of the rank with the most, or of all where they share a process.
std::string memory_text(const run::TrainResult& result, const run::RunConfig& config, const run::RunSummary& summary) {
    const std::string own = to_string(summary.memory.total()), peak = to_string(result.peak_resident);
    if (result.device_memory.count > 0)
        return fmt::format("{} of the device in use; the table above says {}", to_string(result.device_memory), own);
    const std::vector<Bytes>& told = summary.rank_memory;
    if (told.size() < 2) return fmt::format("{} resident at its peak; the table above says {}", peak, own);
    if (config.comm == run::Connection::threads)
        return fmt::format("{} resident at its peak; the tables of all {} ranks say {}", peak, told.size(),
                           to_string(std::accumulate(told.begin(), told.end(), Bytes{})));
    const auto most = std::ranges::max_element(result.rank_peaks) - result.rank_peaks.begin();
    return fmt::format("{} resident at its peak on rank {}, which took the most; its table says {}",
                       to_string(result.rank_peaks[static_cast<std::size_t>(most)]), most,
                       to_string(told[static_cast<std::size_t>(most)]));
}

std::string counted_done(std::int64_t steps) {
    return fmt::format("{} {}", counted(steps, "step"), steps == 1 ? "was" : "were");
}

void show_end(const run::TrainResult& result, const run::RunConfig& config, const Progress& progress) {
    std::vector<terminal::Definition> lines;
    auto line = [&](const char* term, std::string text) { lines.push_back({term, {std::move(text)}}); };
    const std::int64_t steps = progress.summary() ? progress.summary()->steps : config.steps;
    if (result.steps_run > 0)
        line("loss", fmt::format("{:.4f} at first, {:.4f} at last", result.first_loss, result.last_loss));
    line("time", fmt::format("{}, {} tokens/s", to_string(progress.elapsed()),
                             terminal::short_number(progress.tokens_per_second())));
    if (progress.summary() && !result.rank_peaks.empty())
        line("memory", memory_text(result, config, *progress.summary()));
    if (!result.model_folder.empty()) line("model", result.model_folder);
    const std::string head =
        result.steps_run == 0 && !result.stopped
            ? fmt::format("nothing was left to do: {} done before", counted_done(result.steps_done))
            : fmt::format("{} {} of {}", result.stopped ? "stopped after" : "done:", result.steps_done,
                          counted(steps, "step"));
    terminal::print(fmt::format("\n{}\n{}", head, terminal::define(lines, 10000)));
    if (!result.stopped) return;
    if (result.steps_run == 0)
        terminal::print("  no step was run, so nothing was saved\n");
    else
        terminal::print(config.output.empty() ? "  nothing was kept, since there is no --output\n"
                                              : "  the same command with --resume goes on from here\n");
}

// Said before they are: many take their time to start.
void announce_ranks(const run::RunConfig& config) {
    if (config.ranks > 1 && launch::started_ranks() == 0)
        terminal::print(fmt::format("starting {} ranks as {} on {}\n", config.ranks,
                                    config.comm == run::Connection::threads ? "threads" : "processes",
                                    counted(cores::usable_cores(), "core")));
}

// That of the run that goes on (`before`), if the ranks are as many; else what the planner finds.
Plan chosen_plan(const run::RunConfig& config, const run::LayoutFreedom& freedom, const std::optional<Plan>& before,
                 run::TrainListener& listener, comm::World& world) {
    const std::string kept = comm::first_decides(world.all(), [&]() -> std::string {
        return before && before->mesh.ranks() == world.size() ? to_json(*before) : "";
    });
    if (!kept.empty()) return parse_plan(kept, "the plan of the run that goes on");
    const choose::AutomaticOptions options{
        .freedom = freedom, .measure_top = config.dry_run ? 0 : config.measure_top, .version = TUTTI_VERSION};
    const run::PlanChoice choice = choose::choose_plan(config, options, listener, launch::stop_requested(), world);
    listener.chosen(choice);
    return choice.tried[choice.taken].plan;
}

// Said where nobody laid the ranks out: neither the planner nor who started them.
std::string layout_note(const resolve::GivenOptions& given, const run::RunConfig& asked, const run::RunConfig& config) {
    const std::string settled = resolve::settled_by(given, asked);
    if (config.ranks < 2 || asked.mesh || !asked.plan.empty() || !asked.schedule.empty() || settled.empty()) return "";
    return fmt::format("The planner does not choose with {}: all {} ranks are replicas; --mesh says otherwise.\n\n",
                       settled, config.ranks);
}

nlohmann::ordered_json end_json(const run::TrainResult& result, const Progress& progress) {
    std::vector<std::int64_t> peaks;
    for (const Bytes& peak : result.rank_peaks) peaks.push_back(peak.count);
    return {{"steps_done", result.steps_done},
            {"first_loss", result.first_loss},
            {"last_loss", result.last_loss},
            {"stopped", result.stopped},
            {"seconds", progress.elapsed().count},
            {"tokens_per_second", progress.tokens_per_second()},
            {"peak_resident_bytes", result.peak_resident.count},
            {"peak_resident_bytes_of_ranks", peaks},
            {"device_memory_bytes", result.device_memory.count},
            {"waited_seconds", result.waited.count},
            {"model_folder", result.model_folder}};
}

// What came of the run, with a sample of what the model writes now.
void tell_end(const run::TrainResult& result, const run::RunConfig& config, const Progress& progress, bool json) {
    if (!json) show_end(result, config, progress);
    const auto sample =
        result.stopped ? std::nullopt
                       : sample_of(result, config, progress.summary() ? progress.summary()->plan.workload.sequence : 0);
    if (json) {
        nlohmann::ordered_json end = end_json(result, progress);
        if (sample) end["sample"] = *sample;
        terminal::print(
            nlohmann::ordered_json{{"result", end}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
            '\n');
    } else if (sample) {
        terminal::print("\nsample\n" + indented(*sample, std::min<std::size_t>(terminal::terminal_columns(), 100)));
    }
}

int run_training(const TrainFlags& flags) {
    if (flags.help_markdown->count() > 0) {
        terminal::print(run::flags_page());
        return 0;
    }
    const resolve::GivenOptions given = given_in(flags);
    const resolve::AskedRun asked_run = resolve::asked_run(given, launch::started_ranks());
    const run::RunConfig& asked = asked_run.config;
    const std::optional<run::LayoutFreedom> freedom = resolve::freedom_of(given, asked);
    const bool open = freedom && (asked.ranks > 1 || launch::started_ranks() > 1);
    const run::RunConfig config = resolve::resolve_run(asked, launch::started_ranks(), open);
    const bool json = is_set(flags.json);
    Progress progress(json);
    progress.on_planned = [&](const run::RunSummary& summary) {
        for (const std::string& sentence : asked_run.told) progress.warning(sentence);
        run::RunConfig resolved = config;
        resolved.workload = summary.plan.workload; // what was left to the data or to defaults is filled in
        // Only now is everything known to be in order: a run that cannot start leaves nothing behind.
        if (!config.dry_run && !config.output.empty()) {
            run::set_others_aside(config.output, to_json(summary.plan), progress);
            write_text_atomically(fs::path(config.output) / "config.toml", run::kept_config(resolved, asked, open));
        }
        if (json)
            terminal::print(terminal::json_to_show({{"summary", progress.planned_json(summary)}}));
        else
            terminal::print("config\n" +
                            run::to_lines(open ? resolve::with_plan(config, summary.plan) : resolved,
                                          terminal::terminal_columns()) +
                            '\n' + layout_note(given, asked, config));
    };
    std::optional<run::TrainResult> of_first; // of rank 0, if it is here
    std::atomic<int> stop_status = 0;         // the same on all ranks
    launch::check_room(config);
    if (!config.dry_run) terminal::let_output_fail();
    if (!json) announce_ranks(config);
    const int status = launch::run_ranks(config, [&](comm::World& world) {
        run::TrainListener silent;
        const bool is_first = world.rank() == 0;
        run::RunConfig own = config;
        own.threads = launch::threads_of_rank(config, world.rank());
        const cores::Binding binding =
            launch::bind_rank(config, world, own.threads, !devices::has_own_memory(config.device));
        if (is_first) progress.bound(binding);
        run::TrainListener& listener = is_first ? static_cast<run::TrainListener&>(progress) : silent;
        auto choose = [&] { return chosen_plan(own, *freedom, asked_run.before, listener, world); };
        try {
            std::optional<Plan> chosen;
            if (open) chosen = choose();
            const std::optional<Plan>& plan = open ? chosen : asked_run.plan;
            train::TrainPlan with{.given = plan ? &*plan : nullptr,
                                  .before = asked_run.before ? &*asked_run.before : nullptr};
            if (freedom && !open) with.fit = choose;
            const run::TrainResult result = train::train(open ? resolve::with_plan(own, *chosen) : own, listener,
                                                         launch::stop_requested(), world, with);
            if (result.stopped) stop_status = launch::status_of_stop(world);
            if (is_first) of_first = result;
        } catch (const choose::ChoosingStopped&) { // on all ranks
            if (is_first) listener.warning("stopped before a plan was chosen: no step was run, so nothing was saved");
            stop_status = launch::status_of_stop(world);
        }
    });
    if (!of_first || config.dry_run) return status != 0 ? status : stop_status.load();
    progress.finish();
    tell_end(*of_first, config, progress, json);
    return stop_status;
}

// What an option is called, and was before.
std::vector<std::string> names_of(const run::RunOption& option) {
    std::vector<std::string> names = {option.positional() ? option.key : option.flag()};
    for (const std::string& older : option.older) names.push_back(run::flag_of(older));
    return names;
}

} // namespace

Command train_command() {
    Command command;
    command.name = "train";
    command.summary = "train a model: a Hugging Face folder, or a built-in one from scratch";
    command.usage = "[MODEL] [options]";
    command.about =
        "Trains MODEL and writes it back as a Hugging Face folder. Without a model, gpt2-tiny; without data, "
        "built-in text. Ctrl-C, SIGTERM, SIGHUP, SIGXCPU or SIGUSR1 finishes the step at hand, saves a checkpoint and "
        "ends with 128 and the signal's number (130, 143, 129, 152, 138); a second Ctrl-C or SIGTERM ends it at once. "
        "The other statuses: 0, done or stopped by --stop-after; 2, a wrong option or file; 70, a defect; 75, a disk, "
        "memory or rank that was lost, or an output folder that another run writes to. Every "
        "option is also a key of the TOML file that --config names, with underscores: global_batch = 8.";
    command.examples = "tutti train\n"
                       "tutti train gpt2-tiny --data book.txt --sequence 256 --steps 2000 --output run\n"
                       "tutti train path/to/llama --data tokens.bin --dtype bf16 --lr 1e-4 --warmup 100 --output run\n"
                       "tutti train --ranks 4 --zero 1 --global-batch 16\n"
                       "tutti train gpt2 --data tokens.bin --mesh data=2,pipe=2,tensor=2 --micro-batch 2 --output run\n"
                       "tutti train --config run/config.toml --resume";
    command.notes = models_note();
    command.answer_to_unknown = run::answer_to_foreign_name;
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<TrainFlags>();
        const run::RunConfig defaults;
        for (const run::RunOption& option : run::run_options()) {
            const SettingValue value = option.get(defaults);
            // A switch that is off needs no default in help; neither does an empty name.
            const std::string shown = value == SettingValue(false) ? "" : to_plain(value);
            OptionNames added =
                add_names(app, names_of(option), option.operand, option.help, option.yes_or_no() ? "" : shown);
            if (option.yes_or_no() && !shown.empty()) added.front()->default_str("on");
            added.front()->group(option.group);
            flags->run.push_back(std::move(added));
        }
        flags->config = add_value(app, "--config", "FILE", "a TOML file with these options; flags win over it");
        flags->json = add_flag(app, "--json", "the summary and the result as JSON objects, one per line");
        flags->help_markdown = app.add_flag("--help-markdown")->group(""); // hidden
        flags->config->group("Options");
        flags->json->group("Options");
        return [flags] { return run_training(*flags); };
    };
    return command;
}

} // namespace tutti::cli

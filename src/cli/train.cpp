// tutti train: flags and a config file to a RunConfig, the run itself, and what is said at its end.

#include "base/counted.h"
#include "base/error.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/kept_config.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/resolve.h"
#include "cli/run_options.h"
#include "cli/sample.h"
#include "cli/shown.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "comm/agree.h"
#include "models/model.h"
#include "train/automatic.h"
#include "train/process_memory.h"
#include "train/run_folder.h"
#include "train/run_plan.h"
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

namespace tutti::cli {
namespace {

struct TrainFlags {
    std::vector<CLI::Option*> run; // one per run option
    CLI::Option* config = nullptr;
    CLI::Option* json = nullptr;
};

GivenOptions given_in(const TrainFlags& flags) {
    GivenOptions given{.config = text_of(flags.config)};
    for (const CLI::Option* flag : flags.run) given.flags.push_back(text_of(flag));
    return given;
}

// The model is shown at work where its tokens are bytes. Its folder is read anew: so it is seen to be whole.
std::optional<std::string> sample_of(const TrainResult& result, const RunConfig& config, std::int64_t sequence) {
    if (result.model_folder.empty()) return std::nullopt;
    const ModelFacts facts = open_model(result.model_folder).facts();
    if (!facts.causal || facts.vocabulary != 256) return std::nullopt;
    GenerateConfig generation;
    generation.model = result.model_folder;
    generation.prompt = tokens_of_bytes(config.data == "builtin" ? "Once upon a time" : "\n");
    generation.tokens = 200;
    generation.seed = config.seed;
    generation.sequence = sequence; // places beyond those trained on are noise
    generation.threads = config.threads;
    std::string text = config.data == "builtin" ? "Once upon a time" : "";
    generate(generation, [&](std::int64_t token) {
        text += static_cast<char>(token);
        return !stop_requested();
    });
    return safe_to_show(text);
}

// What was taken beside what the tables said: of the rank with the most, or of all where they share a process.
std::string memory_text(const TrainResult& result, const RunConfig& config, const RunSummary& summary) {
    const std::string own = to_string(summary.memory.total()), peak = to_string(result.peak_resident);
    if (result.device_memory.count > 0)
        return fmt::format("{} of the device in use; the table above says {}", to_string(result.device_memory), own);
    const std::vector<Bytes>& told = summary.rank_memory;
    if (told.size() < 2) return fmt::format("{} resident at its peak; the table above says {}", peak, own);
    if (config.comm == Connection::threads)
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

void show_end(const TrainResult& result, const RunConfig& config, const Progress& progress) {
    std::vector<Definition> lines;
    auto line = [&](const char* term, std::string text) { lines.push_back({term, {std::move(text)}}); };
    const std::int64_t steps = progress.summary() ? progress.summary()->steps : config.steps;
    if (result.steps_run > 0)
        line("loss", fmt::format("{:.4f} at first, {:.4f} at last", result.first_loss, result.last_loss));
    line("time",
         fmt::format("{}, {} tokens/s", to_string(progress.elapsed()), short_number(progress.tokens_per_second())));
    if (progress.summary() && !result.rank_peaks.empty())
        line("memory", memory_text(result, config, *progress.summary()));
    if (!result.model_folder.empty()) line("model", result.model_folder);
    const std::string head =
        result.steps_run == 0 && !result.stopped
            ? fmt::format("nothing was left to do: {} done before", counted_done(result.steps_done))
            : fmt::format("{} {} of {}", result.stopped ? "stopped after" : "done:", result.steps_done,
                          counted(steps, "step"));
    print(fmt::format("\n{}\n{}", head, define(lines, 10000)));
    if (!result.stopped) return;
    if (result.steps_run == 0)
        print("  no step was run, so nothing was saved\n");
    else
        print(config.output.empty() ? "  nothing was kept, since there is no --output\n"
                                    : "  the same command with --resume goes on from here\n");
}

// What was left to the data or to defaults, filled in.
RunConfig with_workload(RunConfig config, const Workload& workload) {
    config.sequence = workload.sequence;
    config.global_batch = workload.global_batch;
    config.micro_batch = workload.micro_batch;
    return config;
}

// Said before they are: many take their time to start.
void announce_ranks(const RunConfig& config) {
    if (config.ranks > 1 && started_ranks() == 0)
        print(fmt::format("starting {} ranks as {} on {}\n", config.ranks,
                          config.comm == Connection::threads ? "threads" : "processes",
                          counted(usable_cores(), "core")));
}

// That of the run that goes on, if the ranks are as many; else what the planner finds.
Plan chosen_plan(const RunConfig& config, const LayoutFreedom& freedom, TrainListener& listener, World& world) {
    const std::string before = first_decides(world.all(), [&]() -> std::string {
        const fs::path file = fs::path(config.output) / "plan.json";
        if (!config.resumes() || config.output.empty() || !is_file(file)) return "";
        const Plan plan = read_plan(file.string());
        return plan.mesh.ranks() == world.size() ? to_json(plan) : "";
    });
    if (!before.empty()) return parse_plan(before, "the plan of the run that goes on");
    const AutomaticOptions options{
        .freedom = freedom, .measure_top = config.dry_run ? 0 : config.measure_top, .version = TUTTI_VERSION};
    const PlanChoice choice = choose_plan(config, options, listener, stop_requested(), world);
    listener.chosen(choice);
    return choice.tried[choice.taken].plan;
}

// Said where nobody laid the ranks out: neither the planner nor who started them.
std::string layout_note(const GivenOptions& given, const RunConfig& asked, const RunConfig& config) {
    const std::string settled = settled_by(given, asked);
    if (config.ranks < 2 || asked.mesh || !asked.plan.empty() || !asked.schedule.empty() || settled.empty()) return "";
    return fmt::format("The planner does not choose with {}: all {} ranks are replicas; --mesh says otherwise.\n\n",
                       settled, config.ranks);
}

int run_training(const TrainFlags& flags) {
    const RunConfig asked = asked_run(given_in(flags));
    const std::optional<LayoutFreedom> freedom = freedom_of(given_in(flags), asked);
    const bool open = freedom && (asked.ranks > 1 || started_ranks() > 1);
    const RunConfig config = resolve_run(asked, started_ranks(), open);
    const bool json = is_set(flags.json);
    Progress progress(json);
    progress.on_planned = [&](const RunSummary& summary) {
        const RunConfig resolved = with_workload(config, summary.plan.workload);
        // Only now is everything known to be in order: a run that cannot start leaves nothing behind.
        if (!config.dry_run && !config.output.empty()) {
            set_others_aside(config.output, to_json(summary.plan), progress);
            write_text_atomically(fs::path(config.output) / "config.toml", kept_config(resolved, asked, open));
        }
        if (json)
            print(nlohmann::ordered_json{{"summary", to_json(summary)}}.dump() + '\n');
        else
            print("config\n" + to_lines(open ? with_plan(config, summary.plan) : resolved, terminal_columns()) + '\n' +
                  layout_note(given_in(flags), asked, config));
    };
    std::optional<TrainResult> of_first; // of rank 0, if it is here
    std::atomic<int> stop_status = 0;    // the same on all ranks
    check_room(config);
    if (!config.dry_run) let_output_fail();
    if (!json) announce_ranks(config);
    const int status = run_ranks(config, [&](World& world) {
        TrainListener silent;
        const bool is_first = world.rank() == 0;
        RunConfig own = config;
        own.threads = threads_of_rank(config, world.rank());
        TrainListener& listener = is_first ? static_cast<TrainListener&>(progress) : silent;
        auto choose = [&] { return chosen_plan(own, *freedom, listener, world); };
        try {
            std::optional<Plan> plan;
            if (open) plan = choose();
            TrainPlan with{.given = plan ? &*plan : nullptr};
            if (freedom && !open) with.fit = choose;
            const TrainResult result =
                train(plan ? with_plan(own, *plan) : own, listener, stop_requested(), world, with);
            if (result.stopped) stop_status = status_of_stop(world);
            if (is_first) of_first = result;
        } catch (const ChoosingStopped&) { // on all ranks
            if (is_first) listener.warning("stopped before a plan was chosen: no step was run, so nothing was saved");
            stop_status = status_of_stop(world);
        }
    });
    if (!of_first || config.dry_run) return status != 0 ? status : stop_status.load();
    const TrainResult& result = *of_first;
    progress.finish();
    if (!json) show_end(result, config, progress);
    const auto sample =
        result.stopped ? std::nullopt
                       : sample_of(result, config, progress.summary() ? progress.summary()->plan.workload.sequence : 0);
    if (json) {
        std::vector<std::int64_t> peaks;
        for (const Bytes& peak : result.rank_peaks) peaks.push_back(peak.count);
        nlohmann::ordered_json end = {{"steps_done", result.steps_done},
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
        if (sample) end["sample"] = *sample;
        print(nlohmann::ordered_json{{"result", end}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
              '\n');
    } else if (sample) {
        print("\nsample\n" + indented(*sample, std::min<std::size_t>(terminal_columns(), 100)));
    }
    return stop_status;
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
        "memory or rank that was lost. Every "
        "option is also a key of the TOML file that --config names, with underscores: global_batch = 8.";
    command.examples = "tutti train\n"
                       "tutti train gpt2-tiny --data book.txt --sequence 256 --steps 2000 --output run\n"
                       "tutti train path/to/llama --data tokens.bin --dtype bf16 --lr 1e-4 --warmup 100 --output run\n"
                       "tutti train --ranks 4 --zero 1 --global-batch 16\n"
                       "tutti train gpt2 --data tokens.bin --mesh data=2,pipe=2,tensor=2 --micro-batch 2 --output run\n"
                       "tutti train --config run/config.toml --resume";
    command.notes = models_note();
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<TrainFlags>();
        const RunConfig defaults;
        for (const RunOption& option : run_options()) {
            const OptionValue value = option.get(defaults);
            // A switch that is off needs no default in help; neither does an empty name.
            const std::string shown = value == OptionValue(false) ? "" : to_plain(value);
            CLI::Option* added = option.yes_or_no() ? add_flag(app, option.flag(), option.help)
                                                    : add_value(app, option.positional() ? option.key : option.flag(),
                                                                option.operand, option.help, shown);
            if (option.yes_or_no() && !shown.empty()) added->default_str("on");
            added->group(option.group);
            flags->run.push_back(added);
        }
        flags->config = add_value(app, "--config", "FILE", "a TOML file with these options; flags win over it");
        flags->json = add_flag(app, "--json", "the summary and the result as JSON objects, one per line");
        flags->config->group("Options");
        flags->json->group("Options");
        return [flags] { return run_training(*flags); };
    };
    return command;
}

} // namespace tutti::cli

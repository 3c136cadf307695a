// tutti profile: measures this machine for the planner, and keeps it in a file.

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/arguments.h"
#include "cli/used_files.h"
#include "comm/agree.h"
#include "costs/device_kind.h"
#include "devices/devices.h"
#include "launch/bound_rank.h"
#include "launch/ranks.h"
#include "profiling/kept_profile.h"
#include "profiling/profiling.h"
#include "resolve/asked.h"
#include "run/run_options.h"
#include "terminal/live_line.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"
#include "train/session/session.h"

#include <algorithm>
#include <array>
#include <memory>

namespace tutti::cli {
namespace {

// Those of training that a profile depends on.
constexpr std::array<std::string_view, 8> shared_options = {"model", "device",   "threads", "bind",
                                                            "dtype", "sequence", "ranks",   "comm"};

struct Flags {
    std::vector<CLI::Option*> run; // as run_options(); null where it is not an option here
    CLI::Option *micro_batches = nullptr, *tensor = nullptr, *output = nullptr, *replace = nullptr, *json = nullptr;
};

std::vector<std::int64_t> numbers_of(const CLI::Option* option, const std::string& otherwise) {
    const std::string text = text_of(option).value_or(otherwise);
    std::vector<std::int64_t> numbers;
    for (const std::string& part : terminal::split(text, ',')) {
        const auto number = terminal::parse_integer(part);
        if (!number || *number < 1 || *number > 1 << 20)
            fail("{} is {}, and should be whole numbers from 1, as in 1,2,4", option->get_name(), text);
        numbers.push_back(*number);
    }
    return numbers;
}

profiling::ProfileConfig config_of(const Flags& flags, const run::RunConfig& run) {
    profiling::ProfileConfig config;
    config.model = run.model;
    config.device = run.device;
    if (!run.rank_threads.empty())
        fail("threads is {}; a profile is of ranks that have as many each: measure every kind by itself",
             fmt::join(run.rank_threads, ","));
    config.threads = launch::threads_of_rank(run, 0);
    config.dtype = run.precision.compute;
    config.sequence = run.workload.sequence;
    config.micro_batches = numbers_of(flags.micro_batches, "1");
    if (text_of(flags.tensor))
        for (std::int64_t width : numbers_of(flags.tensor, "")) {
            if (run.ranks % width != 0)
                fail("--tensor is {}, which does not divide the {}", width, counted(run.ranks, "rank"));
            config.widths.push_back(static_cast<int>(width));
        }
    return config;
}

std::string rate(double bytes) { return fmt::format("{:.2f} GB/s", bytes / 1e9); }

std::string collectives_table(const costs::CostProfile& profile) {
    std::vector<std::vector<std::string>> table = {{"collective", "ranks"}};
    std::vector<std::size_t> right = {1};
    for (const costs::CollectiveSample& sample : profile.collectives) {
        if (sample.what != profile.collectives.front().what || sample.ranks != profile.collectives.front().ranks) break;
        table[0].push_back(to_string(sample.bytes));
        right.push_back(table[0].size() - 1);
    }
    for (const costs::CollectiveSample& sample : profile.collectives) {
        if (table.size() == 1 || sample.bytes == profile.collectives.front().bytes)
            table.push_back({std::string(costs::name_of(sample.what)), std::to_string(sample.ranks)});
        table.back().push_back(fmt::format("{:.3f} ms", 1e3 * sample.seconds));
    }
    return terminal::lay_out(table, right);
}

// What the GPU should reach: by its data sheet, or else by its clocks. Nothing where the device has no driver.
std::string peaks_of(const backend::Device& device, DType dtype) {
    const auto figures = device.figures();
    const auto memory = device.memory();
    if (!figures || !memory) return {};
    const costs::DevicePreset* known = costs::find_device_called(device.model());
    const costs::DeviceKind kind =
        known ? costs::DeviceKind(*known) : costs::kind_by_driver(device.model(), memory->total, *figures);
    return fmt::format("{} in {}, memory {}; {}", terminal::short_number(costs::peak_flops(kind, dtype), "FLOP/s"),
                       name_of(dtype), rate(kind.bandwidth),
                       known ? fmt::format("the data sheet of {}", known->name)
                             : "by its clocks: its data sheet is not known here");
}

std::string summary_of(const costs::CostProfile& profile, const std::string& peaks, const cores::Binding& binding) {
    std::vector<terminal::Definition> lines;
    auto line = [&](const char* term, std::string text) { lines.push_back({term, {std::move(text)}}); };
    line("machine", fmt::format("{}; {} of {}, {} used here", profile.machine.model, counted(profile.ranks, "rank"),
                                counted(profile.machine.threads, "thread"), counted(profile.machine.cores, "core")));
    line("cores", cores::describe(binding));
    line("kernels", fmt::format("{} timed; a large product {}, a copy {}, a launch {:.1f} us", profile.kernels.size(),
                                terminal::short_number(profile.speed.flops, "FLOP/s"), rate(profile.speed.bytes),
                                1e6 * profile.speed.launch));
    if (!peaks.empty()) line("peaks", peaks);
    if (!profile.messages.empty())
        line("messages", fmt::format("{:.1f} us for {}, {:.3f} ms for {}", 1e6 * profile.messages.front().seconds,
                                     to_string(profile.messages.front().bytes), 1e3 * profile.messages.back().seconds,
                                     to_string(profile.messages.back().bytes)));
    line("host copies", rate(profile.host_copy.bytes));
    if (profile.ranks > 1)
        line("both at once", fmt::format("computing takes {:.2f} times as long, communicating {:.2f} times",
                                         profile.contention.compute, profile.contention.communication));
    std::string text = terminal::define(lines, 10000);
    if (!profile.collectives.empty()) text += '\n' + collectives_table(profile);
    return text;
}

std::string transport_of(const comm::World& world) {
    return world.size() == 1 ? "" : world.shares_process() ? "threads" : "mpi";
}

// What the file holds already, if it fits: kernels of other models stay in it.
std::optional<costs::CostProfile> kept_in(const std::string& file, const Flags& flags,
                                          const profiling::ProfileConfig& config, const comm::World& world) {
    const int ranks = world.size();
    if (file.empty() || is_free(file)) return std::nullopt;
    if (is_set(flags.replace)) {
        if (!holds_keys(file, {"version", "machine", "kernels"}))
            fail("{} is there and is no profile; --replace writes over profiles only: give another --output", file);
        return std::nullopt;
    }
    costs::CostProfile kept = costs::read_profile(file);
    try {
        costs::check_fits(kept,
                          profiling::fingerprint_of(*devices::open_device(config.device, config.threads),
                                                    config.threads, TUTTI_VERSION),
                          file);
    } catch (const Error& error) {
        fail("{}; --replace writes over it", error.what());
    }
    if (kept.ranks != ranks || kept.dtype != config.dtype)
        fail("{} was measured with {} in {}, and this is {} in {}: give another --output, or --replace", file,
             counted(kept.ranks, "rank"), name_of(kept.dtype), counted(ranks, "rank"), name_of(config.dtype));
    if (const std::string transport = transport_of(world); !kept.transport.empty() && kept.transport != transport)
        fail("{} was measured with ranks that talk by {}, and here they do by {}: give another --output, or --replace",
             file, kept.transport, transport);
    return kept;
}

int run(const Flags& flags) {
    resolve::GivenOptions given;
    for (const CLI::Option* flag : flags.run) given.flags.push_back(flag ? text_of(flag) : std::nullopt);
    const run::RunConfig run_config = resolve::resolve_run(resolve::asked_run(given).config, launch::started_ranks());
    const profiling::ProfileConfig config = config_of(flags, run_config);
    const std::string file = text_of(flags.output).value_or("");
    UsedFiles files;
    files.reads_model(run_config.model);
    files.writes(flags.output);
    const bool json = is_set(flags.json);
    return launch::run_ranks(run_config, [&](comm::World& world) {
        const cores::Binding binding =
            launch::bind_rank(run_config, world, config.threads, !devices::has_own_memory(config.device));
        std::optional<costs::CostProfile> kept;
        comm::first_does(world.all(), [&] { kept = kept_in(file, flags, config, world); });
        terminal::LiveLine line(json);
        costs::CostProfile profile = profiling::measure_profile(
            config, world, TUTTI_VERSION,
            {.begins = [&](const std::string& what) { line.say(terminal::name_to_show(what)); },
             .goes_on = [&](const std::string& what) { line.draw(terminal::name_to_show(what) + " ..."); }});
        line.clear();
        if (world.rank() != 0) return;
        profile.transport = transport_of(world);
        if (kept) profile.kernels.merge(kept->kernels); // new figures win
        std::string where = file;
        if (!file.empty())
            write_text_atomically(file, costs::to_json(profile));
        else if (const auto place = profiling::profile_place(profile.machine, world, profile.dtype)) {
            profiling::keep_profile(*place, profile);
            where = place->string();
        }
        if (json) return terminal::print(costs::to_json(profile));
        const std::string peaks = peaks_of(*devices::open_device(config.device, config.threads), profile.dtype);
        terminal::print('\n' + summary_of(profile, peaks, binding) +
                        (where.empty() ? "" : "\nkept in " + terminal::name_to_show(where) + '\n'));
    });
}

} // namespace

Command profile_command() {
    Command command;
    command.name = "profile";
    command.summary = "measure this machine for the planner";
    command.usage = "[MODEL] [options]";
    command.about = "Times what training MODEL does on this machine, with all ranks at work: every distinct kernel, "
                    "collectives by size of group and bytes, messages, copies, and how computing and communicating "
                    "slow each other down. It is kept, for tutti plan and tutti train to find, and holds for this "
                    "machine, number of threads and "
                    "version alone; measured again, it keeps the kernels of other models.";
    command.examples = "tutti profile gpt2 --ranks 8 --threads 1 --sequence 256 --output profile.json\n"
                       "tutti profile gpt2 --device cuda --dtype bf16 --micro-batch 8,16 --output profile.json";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<Flags>();
        const run::RunConfig defaults;
        for (const run::RunOption& option : run::run_options()) {
            CLI::Option* added = nullptr;
            if (std::ranges::count(shared_options, option.key) > 0)
                added = add_value(app, option.positional() ? option.key : option.flag(), option.operand, option.help,
                                  to_plain(option.get(defaults)));
            flags->run.push_back(added);
        }
        flags->micro_batches = add_value(app, "--micro-batch", "N,N,..", "sequences of a micro-batch", "1");
        flags->tensor = add_value(app, "--tensor", "N,N,..", "widths of the tensor axis; all that divide the ranks");
        flags->output = add_value(app, "--output", "FILE",
                                  "where the profile is kept; by default where tutti plan and tutti train look for it");
        flags->replace = add_flag(app, "--replace", "write over a profile that does not hold here");
        flags->json = add_flag(app, "--json", "the profile as JSON");
        return [flags] { return run(*flags); };
    };
    return command;
}

} // namespace tutti::cli

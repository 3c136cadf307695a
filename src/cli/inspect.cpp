// tutti inspect: finds out what it was given, and shows what is in it.

#include "cli/inspect.h"

#include "base/counted.h"
#include "base/error.h"
#include "base/units.h"
#include "checkpoints/checkpoint.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/sample.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <array>
#include <memory>

namespace tutti::cli {

Inspection inspect_tensors(const fs::path& path) {
    const formats::SafetensorsFile file(path);
    Inspection result;
    result.json = {{"kind", "safetensors"},
                   {"file", path.string()},
                   {"metadata", file.metadata()},
                   {"tensors", nlohmann::ordered_json::array()}};
    std::vector<std::vector<std::string>> table = {{"tensor", "type", "shape", "begin", "end"}};
    std::int64_t elements = 0;
    Bytes bytes;
    for (const formats::TensorEntry& entry : file.entries()) {
        elements += entry.type.shape.elements();
        bytes.count += static_cast<std::int64_t>(entry.bytes());
        table.push_back({terminal::name_to_show(entry.name), std::string(name_of(entry.type.dtype)),
                         to_string(entry.type.shape), std::to_string(entry.begin), std::to_string(entry.end)});
        result.json["tensors"].push_back(
            {{"name", entry.name},
             {"dtype", name_of(entry.type.dtype)},
             {"shape", std::vector<std::int64_t>(entry.type.shape.begin(), entry.type.shape.end())},
             {"begin", entry.begin},
             {"end", entry.end}});
    }
    for (const auto& [name, type] : file.foreign()) {
        table.push_back(
            {terminal::name_to_show(name), terminal::name_to_show(type), "", "", "a type that is not read here"});
        result.json["tensors"].push_back({{"name", name}, {"dtype", type}});
    }
    result.text =
        fmt::format("{}: {}, {} {}, {}\n\n", terminal::name_to_show(path.string()), counted(table.size() - 1, "tensor"),
                    terminal::with_commas(elements), plural(elements, "element"), to_string(bytes));
    for (const auto& [key, value] : file.metadata())
        result.text += fmt::format("  metadata {} = {}\n", terminal::name_to_show(key), formats::in_quotes(value));
    if (!file.metadata().empty()) result.text += '\n';
    result.text += terminal::lay_out(table, std::array<std::size_t, 2>{3, 4});
    return result;
}

Inspection inspect_checkpoint_folder(const fs::path& folder) {
    const checkpoints::CheckpointInfo info = checkpoints::inspect_checkpoint(folder);
    const fs::path file = folder / info.file;
    const bool intact = checkpoints::is_intact(info);
    const auto size = is_there(file) ? static_cast<std::int64_t>(InputFile(file).size()) : 0;
    Inspection result;
    result.json = {
        {"kind", "checkpoint"},
        {"folder", folder.string()},
        {"step", info.state.step},
        {"samples", info.state.samples},
        {"seed", info.state.seed},
        {"skipped", info.state.skipped},
        {"model", info.model},
        {"files", {{{"name", info.file}, {"bytes", size}, {"checksum", info.checksum}, {"intact", intact}}}}};
    const std::vector<terminal::Definition> lines = {
        {"checkpoint", {terminal::name_to_show(folder.string())}},
        {"step", {std::to_string(info.state.step)}},
        {"samples used", {terminal::with_commas(info.state.samples)}},
        {"seed", {std::to_string(info.state.seed)}},
        {"skipped steps", {std::to_string(info.state.skipped)}},
        {"model", {terminal::name_to_show(info.model) + " (a hash of its tensors' names and shapes)"}},
        {"file",
         {fmt::format("{}, {}, checksum {}: {}", info.file, to_string(Bytes{size}),
                      terminal::name_to_show(info.checksum), intact ? "whole" : "DAMAGED, it cannot be resumed from")}},
    };
    result.text = terminal::define(lines, 10000);
    return result;
}

namespace {

struct InspectFlags {
    CLI::Option *what, *graph, *program, *batch, *sequence, *json;
};

Inspection inspect_file(const fs::path& path) {
    if (path.extension() == ".safetensors") return inspect_tensors(path);
    if (path.extension() == ".json") {
        const nlohmann::json json = formats::read_json(path);
        if (json.is_object() && json.contains("tutti_plan")) return inspect_plan(path);
        if (json.is_object() && json.contains("tutti_checkpoint")) return inspect_checkpoint_folder(path.parent_path());
        fail("{} is neither a plan nor a checkpoint; for a model, name its folder", path.string());
    }
    fail("{} is none of what can be inspected: a model folder, plan.json, a checkpoint folder, or a .safetensors file",
         path.string());
}

int run_inspection(const InspectFlags& flags) {
    const auto given = text_of(flags.what);
    if (!given) fail("inspect what? as in tutti inspect gpt2-tiny, or tutti inspect run/plan.json");
    constexpr std::int64_t most = 1'000'000'000; // as in training
    const ModelInspectOptions options{.batch = integer_of(flags.batch, 1, most).value_or(1),
                                      .sequence = integer_of(flags.sequence, 1, most).value_or(0)};
    const std::string what = model_in(*given);
    const fs::path path(what);
    const bool is_file = is_there(path) && !is_folder(path);
    const bool is_checkpoint = is_there(path / "checkpoint.json");
    if (is_set(flags.graph) || is_set(flags.program)) {
        if (is_file || is_checkpoint) fail("--graph and --program are for models, and {} is none", what);
        std::string text;
        if (is_set(flags.graph)) text += model_graph_text(what, options);
        if (is_set(flags.program)) text += model_program_text(what, options);
        terminal::print(is_set(flags.json) ? terminal::json_to_show({{"text", text}}) : terminal::safe_to_show(text));
        return 0;
    }
    const Inspection inspection = is_file         ? inspect_file(path)
                                  : is_checkpoint ? inspect_checkpoint_folder(path)
                                                  : inspect_model(what, options);
    terminal::print(is_set(flags.json) ? terminal::json_to_show(inspection.json, 2)
                                       : terminal::safe_to_show(inspection.text));
    return 0;
}

} // namespace

Command inspect_command() {
    Command command;
    command.name = "inspect";
    command.summary = "show what is in a model, a plan, a checkpoint or a safetensors file";
    command.usage = "MODEL | plan.json | CHECKPOINT | FILE.safetensors [options]";
    command.about =
        "Shows what something is: of a model its tensors and what a token costs, of a checkpoint its step and "
        "whether its files are whole, of a plan every decision in it, of a safetensors file its header.";
    command.examples = "tutti inspect gpt2-tiny\n"
                       "tutti inspect run/checkpoints/step-00000100\n"
                       "tutti inspect path/to/llama --graph --batch 1 --sequence 128";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        auto flags = std::make_shared<InspectFlags>();
        flags->what = add_value(app, "what", "WHAT", "a model (folder or built-in name), plan, checkpoint or file");
        flags->graph = add_flag(app, "--graph", "print a model's graph");
        flags->program = add_flag(app, "--program", "print the program that a training step of it becomes");
        flags->batch = add_value(app, "--batch", "N", "sequences of the graph", "1");
        flags->sequence = add_value(app, "--sequence", "N", "tokens of a sequence; by default the model's, up to 1024");
        flags->json = add_flag(app, "--json", "JSON instead of text");
        return [flags] { return run_inspection(*flags); };
    };
    return command;
}

} // namespace tutti::cli

// tutti generate: samples from a causal model, and shows the tokens as they come.

#include "train/generate.h"

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/sample.h"
#include "formats/json.h"
#include "models/model.h"
#include "terminal/shown.h"
#include "terminal/terminal.h"
#include "terminal/words.h"

#include <algorithm>
#include <memory>

namespace tutti::cli {

std::vector<std::int64_t> tokens_of_bytes(std::string_view text) {
    std::vector<std::int64_t> tokens;
    for (char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
}

std::string indented(std::string_view text, std::size_t columns) {
    std::string result, spaced(text);
    std::ranges::replace(spaced, '\t', ' ');
    for (const std::string& line : terminal::split(spaced, '\n')) {
        const terminal::Definition whole{"", terminal::split(line, ' ')};
        result += terminal::define(std::span(&whole, 1), columns, {0, 0, " "});
    }
    return result;
}

std::string model_in(const std::string& name_or_folder) {
    const fs::path folder(name_or_folder);
    const bool run = !is_there(folder / "config.json") && is_there(folder / "model" / "config.json");
    return run ? (folder / "model").string() : name_or_folder;
}

namespace {

struct GenerateFlags {
    CLI::Option *model, *prompt, *prompt_tokens, *tokens, *temperature, *top_k, *seed, *sequence, *dtype, *threads,
        *json;
};

std::vector<std::int64_t> parse_tokens(const std::string& text) {
    std::vector<std::int64_t> tokens;
    for (const std::string& part : terminal::split(text, ',')) {
        const auto token = terminal::parse_integer(part);
        if (!token || *token < 0)
            fail("--prompt-tokens holds {}, and should be token ids as in 1,2,3", formats::in_quotes(part));
        tokens.push_back(*token);
    }
    return tokens;
}

std::vector<std::int64_t> read_prompt(const GenerateFlags& flags, const models::ModelFacts& facts) {
    const auto text = text_of(flags.prompt), ids = text_of(flags.prompt_tokens);
    if (text && ids) fail("give either --prompt or --prompt-tokens, not both");
    if (!text && !ids) fail("there is nothing to start from: give --prompt TEXT, or --prompt-tokens 1,2,3");
    if (text && facts.vocabulary != 256)
        fail("--prompt TEXT is for models whose tokens are bytes (a vocabulary of 256), and this one has {} tokens: "
             "give "
             "token ids with --prompt-tokens 1,2,3",
             facts.vocabulary);
    const std::vector<std::int64_t> prompt = text ? tokens_of_bytes(*text) : parse_tokens(*ids);
    if (prompt.empty()) fail("the prompt is empty; at least one token is needed to start from");
    for (std::int64_t token : prompt)
        if (token >= facts.vocabulary)
            fail("--prompt-tokens holds {}, but the model's tokens go from 0 to {}", token, facts.vocabulary - 1);
    return prompt;
}

train::GenerateConfig read_config(const GenerateFlags& flags) {
    train::GenerateConfig config;
    const auto model = text_of(flags.model);
    if (!model) fail("which model? as in tutti generate run/model --prompt \"Once upon a time\"");
    config.model = model_in(*model);
    config.tokens = integer_of(flags.tokens, 0).value_or(config.tokens);
    config.temperature = real_of(flags.temperature, 0).value_or(config.temperature);
    config.top_k = integer_of(flags.top_k, 0).value_or(config.top_k);
    config.seed = static_cast<std::uint64_t>(integer_of(flags.seed, 0).value_or(0));
    config.sequence = integer_of(flags.sequence, 0).value_or(config.sequence);
    config.threads = static_cast<int>(std::min<std::int64_t>(integer_of(flags.threads, 0).value_or(0), 4096));
    if (const auto name = text_of(flags.dtype)) {
        const auto dtype = parse_dtype(*name);
        if (dtype != DType::float32 && dtype != DType::bfloat16)
            fail("--dtype is {}, and should be float32 or bf16", formats::in_quotes(*name));
        config.dtype = *dtype;
    }
    return config;
}

void stream_text(const train::GenerateConfig& config) {
    terminal::SafeText safe;
    const bool terminal = terminal::output_is_terminal(); // elsewhere the bytes go through as they are
    auto show = [&](const std::string& bytes) { terminal::print(terminal ? safe.add(bytes) : bytes); };
    for (std::int64_t token : config.prompt) show(std::string(1, static_cast<char>(token)));
    train::generate(config, [&](std::int64_t token) {
        show(std::string(1, static_cast<char>(token)));
        return true;
    });
    terminal::print(terminal ? safe.finish() + '\n' : "\n");
}

void stream_tokens(const train::GenerateConfig& config) {
    terminal::print(fmt::format("{}", fmt::join(config.prompt, " ")));
    train::generate(config, [&](std::int64_t token) {
        terminal::print(fmt::format(" {}", token));
        return true;
    });
    terminal::print("\n");
}

void print_json(const train::GenerateConfig& config, bool bytes) {
    std::vector<std::int64_t> tokens;
    train::generate(config, [&](std::int64_t token) {
        tokens.push_back(token);
        return true;
    });
    nlohmann::ordered_json json = {{"model", config.model}, {"prompt_tokens", config.prompt}, {"tokens", tokens}};
    if (bytes) {
        std::string text;
        for (std::int64_t token : tokens) text += static_cast<char>(token);
        json["text"] = text;
    }
    terminal::print(terminal::json_to_show(json));
}

int run_generation(const GenerateFlags& flags) {
    train::GenerateConfig config = read_config(flags);
    const models::ModelSource source = models::open_model(config.model);
    const models::ModelFacts& facts = source.facts();
    config.prompt = read_prompt(flags, facts);
    if (source.folder().empty())
        terminal::warn(
            fmt::format("{} is a built-in model, which has no trained weights: with random ones, it generates "
                        "noise. Give the folder of a trained model",
                        config.model));
    const bool bytes = facts.vocabulary == 256;
    if (is_set(flags.json))
        print_json(config, bytes);
    else if (bytes)
        stream_text(config);
    else
        stream_tokens(config);
    return 0;
}

} // namespace

Command generate_command() {
    Command command;
    command.name = "generate";
    command.summary = "sample from a model, to see that training worked";
    command.usage = "MODEL --prompt TEXT | --prompt-tokens IDS [options]";
    command.about =
        "Draws tokens from a causal model, one after another, and shows them as they come: as text where the "
        "model's tokens are bytes, as token ids elsewhere.";
    command.examples = "tutti generate run/model --prompt \"Once upon a time\"\n"
                       "tutti generate path/to/llama --prompt-tokens 1,15043,29892 --tokens 50 --temperature 0";
    command.declare = [](CLI::App& app) -> std::function<int()> {
        const train::GenerateConfig defaults;
        auto flags = std::make_shared<GenerateFlags>();
        flags->model = add_value(app, "model", "MODEL", "a Hugging Face folder, a run's folder, or a built-in name");
        flags->prompt = add_value(app, "--prompt", "TEXT", "what to go on from");
        flags->prompt_tokens = add_value(app, "--prompt-tokens", "IDS", "the same as token ids: 1,2,3");
        flags->tokens = add_value(app, "--tokens", "N", "how many to draw", std::to_string(defaults.tokens));
        flags->temperature = add_value(app, "--temperature", "X", "higher is wilder; 0: always the likeliest token",
                                       fmt::format("{}", defaults.temperature));
        flags->top_k = add_value(app, "--top-k", "N", "draw from the N likeliest only; 0: from all", "0");
        flags->seed = add_value(app, "--seed", "N", "the same seed, the same tokens", "0");
        flags->sequence = add_value(app, "--sequence", "N", "longest context; 0: the model's own, at most 1024", "0");
        flags->dtype = add_value(app, "--dtype", "TYPE", "float32 or bf16", "float32");
        flags->threads = add_value(app, "--threads", "N", "0: all cores that this process may use", "0");
        flags->json = add_flag(app, "--json", "one JSON object instead of text");
        return [flags] { return run_generation(*flags); };
    };
    return command;
}

} // namespace tutti::cli

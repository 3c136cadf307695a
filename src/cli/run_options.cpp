#include "cli/run_options.h"

#include "base/error.h"
#include "cli/nearest.h"
#include "cli/words.h"
#include "formats/json.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace tutti::cli {
namespace {

// How each type of field is set from a value and read back. `expected` is its part of an error sentence.

bool assign(std::string& field, const OptionValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text) field = *text;
    return text != nullptr;
}

bool assign(bool& field, const OptionValue& value) {
    const auto* flag = std::get_if<bool>(&value);
    if (flag) field = *flag;
    return flag != nullptr;
}

template <std::integral T>
bool assign(T& field, const OptionValue& value) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (!number || !std::in_range<T>(*number)) return false;
    field = static_cast<T>(*number);
    return true;
}

bool assign(double& field, const OptionValue& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        field = static_cast<double>(*whole);
        return true;
    }
    const auto* number = std::get_if<double>(&value);
    if (!number || !std::isfinite(*number)) return false;
    field = *number;
    return true;
}

bool assign(DType& field, const OptionValue& value) {
    const auto* name = std::get_if<std::string>(&value);
    const auto dtype = name ? parse_dtype(*name) : std::nullopt;
    if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float64) return false;
    field = *dtype;
    return true;
}

bool assign(LearningRateSchedule& field, const OptionValue& value) {
    const auto* name = std::get_if<std::string>(&value);
    const auto schedule = name ? parse_schedule(*name) : std::nullopt;
    if (schedule) field = *schedule;
    return schedule.has_value();
}

OptionValue value_of(const std::string& field) { return field; }
OptionValue value_of(bool field) { return field; }
OptionValue value_of(double field) { return field; }
OptionValue value_of(DType field) { return std::string(name_of(field)); }
OptionValue value_of(LearningRateSchedule field) { return std::string(name_of(field)); }
template <std::integral T>
OptionValue value_of(T field) {
    return static_cast<std::int64_t>(field);
}

std::string expected_of(const std::string&) { return "text"; }
std::string expected_of(bool) { return "true or false"; }
std::string expected_of(double) { return "a number"; }
std::string expected_of(DType) { return "float32, bf16, or (with --device reference) float64"; }
std::string expected_of(LearningRateSchedule) { return "constant, linear, cosine or wsd"; }
template <std::integral T>
std::string expected_of(T) {
    return std::is_unsigned_v<T> ? "an integer from 0" : "an integer";
}

template <class T>
std::int64_t largest_of() {
    if constexpr (!std::integral<T> || std::same_as<T, bool>)
        return 0;
    else
        return static_cast<std::int64_t>(
            std::min<std::uint64_t>(static_cast<std::uint64_t>(std::numeric_limits<T>::max()), INT64_MAX));
}

template <class T>
RunOption option(std::string key, std::string group, T RunConfig::*field, std::string operand, std::string help) {
    return {std::move(key),
            std::move(group),
            std::move(operand),
            std::move(help),
            expected_of(T{}),
            largest_of<T>(),
            [field](RunConfig& config, const OptionValue& value) { return assign(config.*field, value); },
            [field](const RunConfig& config) { return value_of(config.*field); }};
}

// A type that is either float32 or bf16.
RunOption narrow_option(std::string key, std::string group, DType RunConfig::*field, std::string help) {
    RunOption made = option(std::move(key), std::move(group), field, "TYPE", std::move(help));
    made.expected = "float32 or bf16";
    made.set = [field](RunConfig& config, const OptionValue& value) {
        const auto* name = std::get_if<std::string>(&value);
        return name && parse_dtype(*name) != DType::float64 && assign(config.*field, value);
    };
    return made;
}

RunOption betas_option() {
    return {"betas",
            "Optimizer",
            "B1,B2",
            "decay rates of AdamW's two moments",
            "two numbers",
            0,
            [](RunConfig& config, const OptionValue& value) {
                const auto* pair = std::get_if<std::vector<double>>(&value);
                if (!pair || pair->size() != 2 || !std::isfinite((*pair)[0]) || !std::isfinite((*pair)[1]))
                    return false;
                config.beta1 = (*pair)[0];
                config.beta2 = (*pair)[1];
                return true;
            },
            [](const RunConfig& config) {
                return std::vector{config.beta1, config.beta2};
            }};
}

std::vector<RunOption> make_options() {
    using R = RunConfig;
    std::vector<RunOption> all;
    std::string group;
    auto add = [&](const char* key, auto field, const char* operand, const char* help) {
        all.push_back(option(key, group, field, operand, help));
    };
    group = "Model and data";
    add("model", &R::model, "MODEL", "a Hugging Face folder, or the name of a built-in model");
    add("data", &R::data, "FILE",
        "what to train on: a text file (its bytes are the tokens), llm.c .bin, Megatron .bin/.idx, safetensors with "
        "input_ids and targets, or builtin: stories that the program makes up");
    add("eval_data", &R::eval_data, "FILE", "what to evaluate on; by default the last samples of --data are held out");
    add("output", &R::output, "DIR",
        "the run's folder: model/, checkpoints/, config.toml, tensorboard/; without it nothing is kept. The last "
        "checkpoint takes three times the model in float32 and lets --resume --steps MORE go on; it may be removed");
    add("mask_token", &R::mask_token, "ID", "the mask token, for masked language models on plain text");

    group = "Workload";
    add("steps", &R::steps, "N", "optimizer steps");
    add("sequence", &R::sequence, "N", "tokens of a sequence; 0: what the data holds, or a default");
    add("global_batch", &R::global_batch, "N", "sequences per step; 0: what the data holds, or a default");
    add("micro_batch", &R::micro_batch, "N",
        "sequences per forward pass; gradients accumulate over the global batch; 0: all at once");
    add("seed", &R::seed, "N", "of initial weights, sample order and dropout");

    group = "Machine";
    add("device", &R::device, "NAME", "cpu, cuda, or reference: slow and simple, to check others against");
    add("threads", &R::threads, "N", "0: all cores that this process may use");
    add("dtype", &R::dtype, "TYPE",
        "of weights and activations: float32, or bf16 with float32 master weights; float64 with --device reference");
    all.push_back(narrow_option("master", group, &R::master,
                                "of the weights as the optimizer keeps them with --dtype bf16: float32, or bf16 for no "
                                "copy beside the weights, which are then rounded stochastically"));
    all.push_back(
        narrow_option("moments", group, &R::moments, "of AdamW's moments: float32, or bf16, rounded stochastically"));
    add("chunk_elements", &R::chunk_elements, "N", "elements of a memory chunk of model data");
    add("split_backward", &R::split_backward, "", "weight gradients as tasks of their own, after input gradients");

    group = "Optimizer";
    add("lr", &R::lr, "X", "AdamW's learning rate, at its highest");
    add("lr_min", &R::lr_min, "X", "the last learning rate, as a share of --lr");
    add("lr_schedule", &R::lr_schedule, "NAME", "constant, linear, cosine, or wsd (warmup, stable, decay)");
    add("warmup", &R::warmup, "N", "steps in which the learning rate rises from 0");
    add("decay_share", &R::decay_share, "X", "the share of all steps in which wsd decays");
    all.push_back(betas_option());
    add("eps", &R::eps, "X", "added to the root of AdamW's second moment");
    add("weight_decay", &R::weight_decay, "X", "of parameters with two or more dimensions");
    add("clip", &R::clip, "X", "the largest global gradient norm; 0: never clip");

    group = "Evaluating and saving";
    add("eval_every", &R::eval_every, "N", "steps between evaluations; 0: none");
    add("eval_batches", &R::eval_batches, "N", "micro-batches of an evaluation");
    add("save_every", &R::save_every, "N", "steps between checkpoints; 0: only at the end, or when stopped");
    add("keep", &R::keep, "N", "checkpoints that are kept, the newest ones");
    add("resume", &R::resume, "", "go on from the newest checkpoint of --output");
    add("stop_after", &R::stop_after, "N", "steps of this process; then save and stop; 0: all");
    add("non_finite_limit", &R::non_finite_limit, "N", "steps in a row without a finite loss that end the run");
    add("metrics", &R::metrics, "FILE", "one JSON object per step");
    add("tensorboard", &R::tensorboard, "", "TensorBoard event files in the output folder");
    add("dump_step0", &R::dump_step0, "FILE",
        "safetensors with the first step's logits and gradients, before clipping");
    add("dry_run", &R::dry_run, "", "show plan and memory, and stop there");
    return all;
}

std::optional<OptionValue> parse_as(const OptionValue& model, const std::string& text) {
    if (std::holds_alternative<std::string>(model)) return text;
    if (std::holds_alternative<std::int64_t>(model)) return parse_integer(text);
    if (std::holds_alternative<double>(model)) return parse_real(text);
    if (std::holds_alternative<bool>(model)) {
        if (text == "true" || text == "false") return text == "true";
        return std::nullopt;
    }
    std::vector<double> numbers;
    for (const std::string& part : split(text, ',')) {
        const auto number = parse_real(part);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    return numbers;
}

std::optional<OptionValue> value_of_node(const toml::node& node) {
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* whole = node.as_integer()) return whole->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* array = node.as_array()) {
        std::vector<double> numbers;
        for (const toml::node& element : *array) {
            const auto number = element.value<double>();
            if (!number) return std::nullopt;
            numbers.push_back(*number);
        }
        return numbers;
    }
    return std::nullopt;
}

std::string describe(const toml::node& node) {
    if (const auto* text = node.as_string()) return in_quotes(text->get());
    if (node.is_table()) return "a table";
    if (node.is_array()) return "an array";
    std::ostringstream stream;
    node.visit([&](const auto& value) { stream << value; });
    return stream.str();
}

// What would be right instead of `text`: an integer that is too large or too small is told where the range ends.
std::string expected_for(const RunOption& option, std::string_view text, const char* betas) {
    if (option.key == "betas") return betas;
    if (option.largest == 0 || !is_integer(text)) return option.expected;
    return text.starts_with('-') ? "an integer from 0" : fmt::format("an integer up to {}", option.largest);
}

std::string suggested_key(const std::string& unknown) {
    std::vector<std::string> keys;
    for (const RunOption& option : run_options()) keys.push_back(option.key);
    return suggestion(unknown, keys);
}

} // namespace

std::string RunOption::flag() const {
    std::string name = "--" + key;
    std::ranges::replace(name, '_', '-');
    return name;
}

std::span<const RunOption> run_options() {
    static const std::vector<RunOption> options = make_options();
    return options;
}

const RunOption* find_run_option(std::string_view key) {
    const auto found = std::ranges::find(run_options(), key, &RunOption::key);
    return found == run_options().end() ? nullptr : &*found;
}

void set_from_text(RunConfig& config, const RunOption& option, const std::string& text) {
    const auto value = parse_as(option.get(config), text);
    if (value && option.set(config, *value)) return;
    fail("{} is {}, and should be {}", option.positional() ? option.operand : option.flag(), in_quotes(text),
         expected_for(option, text, "two numbers, as in 0.9,0.95"));
}

void parse_run_config(RunConfig& config, std::string_view text, const std::string& where) {
    toml::table table;
    try {
        table = toml::parse(text, where);
    } catch (const toml::parse_error& error) {
        fail("{}, line {}: {}", where, error.source().begin.line, error.description());
    }
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        const auto line = key.source().begin.line;
        const RunOption* option = find_run_option(name);
        if (!option) fail("{}, line {}: unknown key {}{}", where, line, in_quotes(name), suggested_key(name));
        const auto value = value_of_node(node);
        if (value && option->set(config, *value)) continue;
        fail("{}, line {}: {} is {}, and should be {}", where, line, name, describe(node),
             expected_for(*option, node.is_integer() ? describe(node) : "", "two numbers, as in [0.9, 0.95]"));
    }
}

void read_run_config(RunConfig& config, const fs::path& path) {
    constexpr std::uint64_t largest = 1 << 20;
    if (const InputFile file(path); file.size() > largest)
        fail("{} holds {} bytes; a config file holds at most {}", path.string(), file.size(), largest);
    parse_run_config(config, read_text(path), path.string());
}

std::string to_plain(const OptionValue& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
    if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
    return fmt::format("{}", fmt::join(std::get<std::vector<double>>(value), ","));
}

std::string to_toml(const OptionValue& value) {
    auto real = [](double number) {
        const std::string text = fmt::format("{}", number); // the shortest that reads back the same
        return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    };
    if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
    if (const auto* number = std::get_if<double>(&value)) return real(*number);
    std::string text;
    for (double number : std::get<std::vector<double>>(value)) text += (text.empty() ? "[" : ", ") + real(number);
    return text + "]";
}

std::string to_toml(const RunConfig& config) {
    std::string text = "# A run of tutti train, as resolved: tutti train --config FILE runs it again.\n", group;
    for (const RunOption& option : run_options()) {
        if (option.group != group) text += fmt::format("\n# {}\n", group = option.group);
        text += fmt::format("{} = {}\n", option.key, to_toml(option.get(config)));
    }
    return text;
}

std::string to_lines(const RunConfig& config, std::size_t columns) {
    std::vector<Definition> groups;
    for (const RunOption& option : run_options()) {
        if (groups.empty() || groups.back().term != option.group) groups.push_back({option.group, {}});
        const std::string value = to_plain(option.get(config));
        if (!value.empty()) groups.back().words.push_back(option.key + " " + value);
    }
    return define(groups, columns);
}

} // namespace tutti::cli

// The table: every option of a training run, with its help and how its value is read and shown.
#include "run/run_options.h"

#include "base/error.h"
#include "base/nearest.h"
#include "formats/json.h"
#include "schedule/families.h"
#include "terminal/words.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::run {
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
    if (!dtype || (*dtype != DType::float32 && *dtype != DType::bfloat16 && *dtype != DType::float64)) return false;
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

const std::string* text_in(const OptionValue& value) { return std::get_if<std::string>(&value); }

// A value that is written as text and stands for something else: `parse` gives nothing where the text does not fit.
template <class T, class Parse, class Print>
RunOption text_option(std::string key, std::string group, T RunConfig::*field, std::string operand,
                      std::string expected, std::string help, Parse parse, Print show) {
    return {std::move(key),
            std::move(group),
            std::move(operand),
            std::move(help),
            std::move(expected),
            0,
            [field, parse](RunConfig& config, const OptionValue& value) {
                const auto parsed = parse(text_in(value) ? *text_in(value) : to_plain(value));
                if (parsed) config.*field = *parsed;
                return parsed.has_value();
            },
            [field, show](const RunConfig& config) -> OptionValue { return std::string(show(config.*field)); }};
}

// A switch whose state is written out: --sub-pipeline on.
RunOption switch_option(std::string key, std::string group, bool RunConfig::*field, std::string help) {
    auto parse = [](std::string_view text) -> std::optional<bool> {
        if (text == "on" || text == "yes") return true; // yes, no: a TOML boolean
        if (text == "off" || text == "no") return false;
        return std::nullopt;
    };
    return text_option(std::move(key), std::move(group), field, "on|off", "on or off", std::move(help), parse,
                       [](bool on) { return on ? "on" : "off"; });
}

// Empty where none is given.
std::optional<std::optional<sharding::Mesh>> mesh_in(const std::string& text) {
    if (text.empty()) return std::optional<sharding::Mesh>{};
    return std::optional(sharding::parse_mesh(text));
}

std::optional<std::string> schedule_in(const std::string& text) {
    std::vector<std::string> names;
    for (const schedule::Family& family : schedule::families()) names.emplace_back(family.name);
    if (text.empty() || std::ranges::find(names, text) != names.end()) return text;
    if (text.size() <= 100) std::ranges::stable_sort(names, {}, [&](auto& name) { return edit_distance(text, name); });
    fail("there is no schedule {}; there are {}", formats::in_quotes(text), fmt::join(names, ", "));
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

// One number, or one for every rank.
RunOption threads_option(std::string group) {
    auto parse = [](const std::string& text) -> std::optional<std::vector<int>> {
        std::vector<int> numbers;
        for (const std::string& part : terminal::split(text, ',')) {
            const auto number = terminal::parse_integer(part);
            if (!number || *number < 0 || *number > 1 << 20) return std::nullopt;
            numbers.push_back(static_cast<int>(*number));
        }
        return numbers.size() == 1 || std::ranges::count(numbers, 0) == 0 ? std::optional(numbers) : std::nullopt;
    };
    return {"threads",
            std::move(group),
            "N",
            "compute threads of a rank, or of every rank as in 3,1,1; 0: its share of the cores that it may use",
            "an integer up to 1048576, or one for every rank as in 3,1,1",
            0,
            [parse](RunConfig& config, const OptionValue& value) {
                const auto numbers = parse(text_in(value) ? *text_in(value) : to_plain(value));
                if (!numbers) return false;
                config.threads = numbers->size() == 1 ? numbers->front() : 0;
                config.rank_threads = numbers->size() == 1 ? std::vector<int>{} : *numbers;
                return true;
            },
            [](const RunConfig& config) -> OptionValue {
                return config.rank_threads.empty() ? std::to_string(config.threads)
                                                   : fmt::format("{}", fmt::join(config.rank_threads, ","));
            }};
}

std::vector<RunOption> make_options() {
    using R = RunConfig;
    std::vector<RunOption> all;
    std::string group;
    auto add = [&](const char* key, auto field, const char* operand, const char* help) {
        all.push_back(option(key, group, field, operand, help));
    };
    auto add_size = [&](const char* key, Bytes R::*field, const char* help) {
        all.push_back(text_option(key, group, field, "SIZE", "a size such as 256MB or 24GiB", help, parse_bytes,
                                  [](Bytes size) { return std::to_string(size.count); }));
    };
    group = "Model and data";
    add("model", &R::model, "MODEL", "a Hugging Face folder, or the name of a built-in model");
    add("from_scratch", &R::from_scratch, "",
        "begin with new, random weights, also where MODEL holds some; its folder needs no more than a config.json. "
        "Built-in models always do");
    add("data", &R::data, "FILE",
        "what to train on: llm.c .bin, Megatron .bin/.idx, safetensors with input_ids and targets; a text file, for "
        "models whose tokens are bytes; or builtin: stories that the program makes up, read as bytes by any model");
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
        "sequences per forward pass; gradients accumulate over the global batch; 0: all of a replica at once");
    add("seed", &R::seed, "N", "of initial weights, sample order and dropout");

    group = "Machine";
    add("device", &R::device, "NAME", "cpu, cuda, or reference: slow and simple, to check others against");
    add("gpu", &R::gpu, "NAME",
        "with --dry-run: the memory table for this kind of GPU, which need not be here: h100, h200, a100-80 and "
        "others");
    all.push_back(threads_option(group));
    add("dtype", &R::dtype, "TYPE",
        "of weights and activations: float32, or bf16 with float32 master weights; float64 with --device reference");
    all.push_back(narrow_option("master", group, &R::master,
                                "of the weights as the optimizer keeps them with --dtype bf16: float32, or bf16 for no "
                                "copy beside the weights, which are then rounded stochastically"));
    all.push_back(narrow_option("gradients", group, &R::gradients,
                                "of parameters, with --dtype bf16: float32, or bf16, which takes half the memory; sums "
                                "within a micro-batch are float32 either way, but adding many micro-batches up in bf16 "
                                "loses what is small against the sum"));
    all.push_back(
        switch_option("over_weights", group, &R::over_weights,
                      "let bf16 gradients lie where the weights do, which the update makes anew from float32 "
                      "master weights, wherever nothing reads these in between: with one micro-batch per step"));
    all.push_back(
        narrow_option("moments", group, &R::moments, "of AdamW's moments: float32, or bf16, rounded stochastically"));
    add("chunk_elements", &R::chunk_elements, "N",
        "elements of a memory chunk of model data; 0: 256 Mi, or 4 Mi where there are replicas");
    add_size(
        "device_memory", &R::device_memory,
        "most of it that a rank may take on its device, as in 24GiB; model data beyond it is kept in host memory and "
        "brought when it is needed; 0: all there is");
    add_size("host_memory", &R::host_memory, "most of it for model data that is not on the device; 0: no limit");
    add("disk", &R::disk, "DIR",
        "folder for model data that host memory does not hold either; copies go through 128 MiB at most");
    all.push_back(text_option(
        "optimizer_placement", group, &R::optimizer_placement, "WHERE", "auto, device or host",
        "where AdamW updates model data that does not stay on the device: device, while it passes through; host, by "
        "the CPU where it is at home; auto: whichever makes the step shorter",
        offload::parse_optimizer_placement,
        [](offload::OptimizerPlacement one) { return std::string(offload::name_of(one)); }));
    all.push_back(text_option(
        "updates", group, &R::updates, "WHEN", "auto, backward, end or next",
        "when AdamW updates: end, after the norm is known; next, where model data comes and goes in the next step, "
        "right "
        "before it is used; backward, with --clip 0, each part of the model as soon as its gradients are final: a step "
        "that turns out not finite keeps the updates before; auto: with --device-memory backward where nothing is "
        "clipped, else the faster of end and next",
        offload::parse_update_time, [](offload::UpdateTime one) { return std::string(offload::name_of(one)); }));
    all.push_back(text_option(
        "offload_activations", group, &R::offload_activations, "HOW", "none, auto or full",
        "what the backward needs of the forward may be in host memory in between, where --device-memory asks for it: "
        "full, of all blocks; auto, of those whose copies take less time than computing them again, instead of "
        "--recompute; none: it stays on the device",
        parse_activation_offload, [](ActivationOffload one) { return std::string(name_of(one)); }));
    all.push_back(text_option("eviction", group, &R::eviction, "RULE", "farthest, lru or fifo",
                              "what leaves the device for others: what is used last again (farthest); to compare with: "
                              "what was used or came longest ago (lru, fifo)",
                              offload::parse_eviction,
                              [](offload::Eviction one) { return std::string(offload::name_of(one)); }));
    all.push_back(switch_option("prefetch", group, &R::prefetch, "bring model data before it is needed"));
    add("split_backward", &R::split_backward, "", "weight gradients as tasks of their own, after input gradients");

    group = "Many ranks";
    add("ranks", &R::ranks, "N",
        "processes that train together; tutti starts mpirun for them, unless mpirun or srun started it; 0: as many as "
        "the mesh has");
    all.push_back(text_option(
        "mesh", group, &R::mesh, "AXIS=N,..", "axes of parallelism, as in data=2,pipe=2,tensor=2",
        "ranks along the axes of parallelism, as in data=2,pipe=2,tensor=2: data replicas, pipe ranks with a part of "
        "the "
        "layers each, tensor ranks that share every layer; axes left out are 1; by default the planner chooses",
        mesh_in, [](const std::optional<sharding::Mesh>& mesh) { return mesh ? sharding::to_string(*mesh) : ""; }));
    all.push_back(text_option("comm", group, &R::comm, "NAME", "auto, threads or mpi",
                              "how ranks talk: mpi between processes, threads for ranks in one process; auto: mpi",
                              parse_connection, [](Connection one) { return name_of(one); }));
    add("timeout", &R::timeout, "S",
        "seconds that ranks wait for one that does not come, before it is named and the run ends; one that was killed "
        "or "
        "stopped is noticed after 30");
    all.push_back(text_option("schedule", group, &R::schedule, "NAME", "the name of a schedule",
                              "of the pipeline, as tutti schedule list shows them; by default 1f1b", schedule_in,
                              [](const std::string& name) { return name; }));
    add("stages_per_rank", &R::stages_per_rank, "N",
        "stages that each pipe rank holds; 0: as many as the schedule needs");
    add("copies", &R::copies, "N", "copies of the model that share the pipe ranks; 0: what the schedule has");
    add("in_flight", &R::in_flight, "N", "most micro-batches under way at a time; 0: what the schedule has");
    add("zero", &R::zero, "0..3", "spread over the data axis: 1 optimizer states, 2 gradients too, 3 weights too");
    all.push_back(text_option("recompute", group, &R::recompute, "HOW", "none, auto, full, or a share from 0 to 1",
                              "activations computed again in the backward instead of being kept: none, auto (as many "
                              "as memory asks for), full, or a share of the layers as in 0.5",
                              parse_recompute, [](const RecomputeAmount& amount) { return to_string(amount); }));
    all.push_back(switch_option("sequence_parallel", group, &R::sequence_parallel,
                                "on the tensor axis, split norms and what lies beside them by sequence"));
    all.push_back(switch_option("sub_pipeline", group, &R::sub_pipeline,
                                "take micro-batches in halves, so that one half computes while the other's results are "
                                "exchanged on the tensor axis"));
    add("plan", &R::plan, "FILE",
        "a plan.json to follow: its mesh, schedule, batches and types stand instead of these options");
    add("measure_top", &R::measure_top, "N",
        "where no mesh, schedule or plan is given: so many of the planner's best plans are run for a few steps, and "
        "the "
        "fastest is taken; 0: the one that is predicted to be");
    add("trace", &R::trace, "FILE",
        "what every rank did when in steps 2 to 4 (the last ones of a shorter run), for tutti report and "
        "ui.perfetto.dev; these steps run task by task, so that a GPU is slower in them");

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
    add("keep", &R::keep, "N",
        "checkpoints that are kept: the newest ones, and always the newest that a finite step followed");
    add("resume", &R::resume, "", "go on from the newest checkpoint of --output");
    add("resume_from", &R::resume_from, "STEP",
        "go on from the checkpoint of this step instead; newer ones are kept under another name; 0: from the newest");
    add("allow_changed_data", &R::allow_changed_data, "",
        "with --resume: go on although the files of --data hold something else than when the checkpoint was saved");
    add("stop_after", &R::stop_after, "N", "steps of this process; then save and stop; 0: all");
    add("non_finite_limit", &R::non_finite_limit, "N", "steps in a row without a finite loss that end the run");
    add("metrics", &R::metrics, "FILE", "one JSON object per step");
    add("tensorboard", &R::tensorboard, "", "TensorBoard event files in the output folder");
    add("dump_step0", &R::dump_step0, "FILE",
        "safetensors with the first step's logits and gradients, before clipping");
    add("report", &R::report, "FILE",
        "write a page that shows what comes to the device and leaves it in a step; with --device-memory");
    add("dry_run", &R::dry_run, "", "show plan and memory, and stop there");
    return all;
}

} // namespace

std::span<const RunOption> run_options() {
    static const std::vector<RunOption> options = make_options();
    return options;
}

} // namespace tutti::run

// The table: every option of a training run, with its help and how its value is read and shown.
#include "run/run_options.h"

#include "base/error.h"
#include "base/nearest.h"
#include "formats/json.h"
#include "plan/settings_table.h"
#include "schedule/families.h"
#include "terminal/words.h"

#include <algorithm>
#include <cmath>

namespace tutti::run {
namespace {

using R = RunConfig;

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

// One of few words.
template <class T, class Parse>
Setting<R> word_setting(T R::*field, const char* expected, Parse parse) {
    return text_setting<R>(path(field), expected, parse, [](T one) { return name_of(one); });
}

Setting<R> mesh_setting() {
    return text_setting<R>(
        path(&R::mesh), "axes of parallelism, as in data=2,pipe=2,tensor=2", mesh_in,
        [](const std::optional<sharding::Mesh>& mesh) { return mesh ? sharding::to_string(*mesh) : ""; });
}

Setting<R> schedule_setting() {
    return text_setting<R>(path(&R::schedule), "the name of a schedule", schedule_in,
                           [](const std::string& name) { return name; });
}

Setting<R> recompute_setting() {
    return text_setting<R>(path(&R::recompute), "none, auto, full, or a share from 0 to 1", parse_recompute,
                           [](const RecomputeAmount& amount) { return to_string(amount); });
}

Setting<R> betas_setting() {
    return {"two numbers", 0,
            [](R& config, const SettingValue& value) {
                const auto* pair = std::get_if<std::vector<double>>(&value);
                if (!pair || pair->size() != 2 || !std::isfinite((*pair)[0]) || !std::isfinite((*pair)[1]))
                    return false;
                config.beta1 = (*pair)[0];
                config.beta2 = (*pair)[1];
                return true;
            },
            [](const R& config) {
                return std::vector{config.beta1, config.beta2};
            }};
}

// One number, or one for every rank.
Setting<R> threads_setting() {
    auto parse = [](const std::string& text) -> std::optional<std::vector<int>> {
        std::vector<int> numbers;
        for (const std::string& part : terminal::split(text, ',')) {
            const auto number = terminal::parse_integer(part);
            if (!number || *number < 0 || *number > 1 << 20) return std::nullopt;
            numbers.push_back(static_cast<int>(*number));
        }
        return numbers.size() == 1 || std::ranges::count(numbers, 0) == 0 ? std::optional(numbers) : std::nullopt;
    };
    return {"an integer up to 1048576, or one for every rank as in 3,1,1", 0,
            [parse](R& config, const SettingValue& value) {
                const auto numbers = parse(to_plain(value));
                if (!numbers) return false;
                config.threads = numbers->size() == 1 ? numbers->front() : 0;
                config.rank_threads = numbers->size() == 1 ? std::vector<int>{} : *numbers;
                return true;
            },
            [](const R& config) -> SettingValue {
                return config.rank_threads.empty() ? std::to_string(config.threads)
                                                   : fmt::format("{}", fmt::join(config.rank_threads, ","));
            }};
}

// Options are added in the order of help, group by group.
class Table {
  public:
    std::vector<RunOption> rows{};
    std::string group{};

    void add(const char* key, Setting<R> setting, const char* operand, const char* help) {
        rows.push_back({std::move(setting), key, group, operand, help});
    }
    template <class T>
    void add(const char* key, T R::*field, const char* operand, const char* help) {
        add(key, plain_setting<R>(path(field)), operand, help);
    }
    // A setting that a plan decides in the same words: what is expected of it stands in the table of plans.
    void add_planned(const char* key, const char* operand, const char* help) {
        const Setting<PlanSettings>& given = plan_setting(key).given;
        add(key, {given.expected, given.largest, given.set, given.get}, operand, help);
    }
    // The last option had another name before, which is still read.
    void was(const char* older) { rows.back().older.emplace_back(older); }
};

void add_model_and_data(Table& table) {
    table.group = "Model and data";
    table.add("model", &R::model, "MODEL", "a Hugging Face folder, or the name of a built-in model");
    table.add(
        "from_scratch", &R::from_scratch, "",
        "begin with new, random weights, also where MODEL holds some; its folder needs no more than a config.json. "
        "Built-in models always do");
    table.add(
        "data", &R::data, "FILE",
        "what to train on: llm.c .bin, Megatron .bin/.idx, safetensors with input_ids and targets (and documents, "
        "where "
        "sequences are packed); a text file, for models whose tokens are bytes; or builtin: stories that the program "
        "makes up, read as bytes by any model");
    table.add("eval_data", &R::eval_data, "FILE",
              "what to evaluate on; by default the last samples of --data are held out");
    table.add(
        "output", &R::output, "DIR",
        "the run's folder: model/, checkpoints/, config.toml, tensorboard/; without it nothing is kept. The last "
        "checkpoint takes three times the model in float32 and lets --resume --steps MORE go on; it may be removed");
    table.add("mask_token", &R::mask_token, "ID", "the mask token, for masked language models on plain text");
}

void add_workload(Table& table) {
    table.group = "Workload";
    table.add("steps", &R::steps, "N", "optimizer steps");
    table.add_planned("sequence", "N", "tokens of a sequence; 0: what the data holds, or a default");
    table.add_planned("global_batch", "N", "sequences per step; 0: what the data holds, or a default");
    table.add_planned(
        "micro_batch", "N",
        "sequences per forward pass; gradients accumulate over the global batch; 0: all of a replica at once");
    table.add("seed", &R::seed, "N", "of initial weights, sample order and dropout");
}

void add_machine(Table& table) {
    table.group = "Machine";
    table.add_planned("device", "NAME", "cpu, cuda, or reference: slow and simple, to check others against");
    table.add("gpu", &R::gpu, "NAME",
              "with --dry-run: the memory table for this kind of GPU, which need not be here: h100, h200, a100-80 and "
              "others");
    table.add("threads", threads_setting(), "N",
              "compute threads of a rank, or of every rank as in 3,1,1; 0: its share of the cores that it may use");
    table.add(
        "bind", word_setting(&R::bind, "auto, none, core or numa", cores::parse_bind), "HOW",
        "which cores ranks run on: auto, a share of them each, and a core for every thread where the threads fill "
        "it; core, a core for every thread in any case; numa, the cores of a memory node; none, where the system "
        "puts them. What mpirun, srun or taskset allowed is shared out, and no more");
    table.add_planned(
        "dtype", "TYPE",
        "of weights and activations: float32, or bf16 with float32 master weights; float64 with --device reference");
    table.add_planned("master", "TYPE",
                      "of the weights as the optimizer keeps them with --dtype bf16: float32, or bf16 for no "
                      "copy beside the weights, which are then rounded stochastically");
    table.add_planned("gradients", "TYPE",
                      "of parameters, with --dtype bf16: float32, or bf16, which takes half the memory; sums "
                      "within a micro-batch are float32 either way, but adding many micro-batches up in bf16 "
                      "loses what is small against the sum");
    table.add_planned("over_weights", "on|off",
                      "let bf16 gradients lie where the weights do, which the update makes anew from float32 "
                      "master weights, wherever nothing reads these in between: with one micro-batch per step");
    table.add_planned("moments", "TYPE", "of AdamW's moments: float32, or bf16, rounded stochastically");
    table.add_planned("chunk_elements", "N",
                      "elements of a memory chunk of model data; 0: 256 Mi, or 4 Mi where there are replicas");
    table.add_planned("device_memory", "SIZE",
                      "most memory that a rank may take on its device, as in 24GiB; model data beyond it is offloaded "
                      "to host memory and fetched when it is needed; 0: no limit");
    table.add_planned("host_memory", "SIZE", "most host memory for offloaded model data; 0: no limit");
    table.add("disk", &R::disk, "DIR",
              "folder for model data that host memory does not hold either; copies go through 128 MiB at most");
    table.add_planned("optimizer_placement", "WHERE",
                      "where AdamW updates offloaded model data: device, after fetching it; host, by the CPU in host "
                      "memory (as ZeRO-Offload does); auto: whichever makes the step shorter");
    table.add_planned("updates", "WHEN",
                      "when AdamW updates: end, after the norm is known; next, with offloading, in the next step, "
                      "right before the weights are used; backward, with --clip 0, each part of the model as soon as "
                      "its gradients are final: a step that turns out not finite keeps the updates before; auto: with "
                      "--device-memory backward where nothing is clipped, else the faster of end and next");
    table.add("offload_activations",
              word_setting(&R::offload_activations, "none, auto or full", parse_activation_offload), "HOW",
              "offload activations to host memory between forward and backward, where --device-memory asks for it: "
              "full, of all blocks; auto, of those whose copies take less time than recomputing them, instead of "
              "--recompute; none: they stay on the device");
    table.add_planned("eviction", "RULE",
                      "which model data is evicted from the device first: that with the farthest next use (farthest); "
                      "to compare with: that used or fetched longest ago (lru, fifo)");
    table.add_planned("prefetch", "on|off", "fetch offloaded model data before it is needed");
    table.add_planned("split_backward", "", "weight gradients as tasks of their own, after input gradients");
}

void add_many_ranks(Table& table) {
    table.group = "Many ranks";
    table.add(
        "ranks", &R::ranks, "N",
        "processes that train together; tutti starts mpirun for them, unless mpirun or srun started it; 0: as many as "
        "the mesh has");
    table.add("mesh", mesh_setting(), "AXIS=N,..",
              "ranks along the axes of parallelism, as in data=2,pipe=2,tensor=2: data parallel replicas, pipeline "
              "parallel ranks with a part of the layers each, tensor parallel ranks that share every layer; axes left "
              "out are 1; by default the planner chooses");
    table.add("comm", word_setting(&R::comm, "auto, threads or mpi", parse_connection), "NAME",
              "how ranks communicate: mpi between processes, threads for ranks in one process; auto: mpi");
    table.add("timeout", &R::timeout, "S",
              "seconds that ranks wait for one that does not come, before it is named and the run ends; one that was "
              "killed or stopped is noticed after 30");
    table.add("schedule", schedule_setting(), "NAME",
              "of the pipeline, as tutti schedule list shows them; by default 1f1b");
    table.add("stages_per_rank", &R::stages_per_rank, "N",
              "pipeline stages of each pipe rank (virtual stages); 0: as many as the schedule needs");
    table.add("model_replicas", &R::model_replicas, "N",
              "replicas of the model that share the pipe ranks, in a bidirectional schedule; 0: what the schedule has");
    table.was("copies");
    table.add("in_flight", &R::in_flight, "N", "most micro-batches in flight at a time; 0: what the schedule has");
    table.add_planned(
        "zero", "0..3",
        "ZeRO level: over the data axis, 1 shards optimizer states, 2 gradients too, 3 weights too (FSDP)");
    table.add("recompute", recompute_setting(), "HOW",
              "activation recomputation (activation checkpointing), in the backward: none, auto (as much as memory "
              "asks for), full, or a share of every stage's blocks as in 0.5");
    table.add_planned("sequence_parallel", "on|off",
                      "on the tensor axis, split norms and what lies beside them by sequence");
    table.add_planned("sub_pipeline", "on|off",
                      "micro-batch halves: one half computes while the other's tensor-parallel collectives run");
    table.add("plan", &R::plan, "FILE",
              "a plan.json to follow: its mesh, schedule, batches and types stand instead of these options");
    table.add("measure_top", &R::measure_top, "N",
              "where no mesh, schedule or plan is given: so many of the planner's best plans are run for a few steps, "
              "and the fastest is taken; 0: the one that is predicted to be");
    table.add("trace", &R::trace, "FILE",
              "what every rank did when in steps 2 to 4 (the last ones of a shorter run), for tutti report and "
              "ui.perfetto.dev; these steps run task by task, so that a GPU is slower in them");
}

void add_optimizer(Table& table) {
    table.group = "Optimizer";
    table.add("lr", &R::lr, "X", "AdamW's learning rate, at its highest");
    table.add("lr_min", &R::lr_min, "X", "the last learning rate, as a share of --lr");
    table.add("lr_schedule", word_setting(&R::lr_schedule, "constant, linear, cosine or wsd", parse_schedule), "NAME",
              "constant, linear, cosine, or wsd (warmup, stable, decay)");
    table.add("warmup", &R::warmup, "N", "steps in which the learning rate rises from 0");
    table.add("decay_share", &R::decay_share, "X", "the share of all steps in which wsd decays");
    table.add("betas", betas_setting(), "B1,B2", "decay rates of AdamW's two moments");
    table.add("eps", &R::eps, "X", "added to the root of AdamW's second moment");
    table.add("weight_decay", &R::weight_decay, "X", "of parameters with two or more dimensions");
    table.add("clip", &R::clip, "X", "the largest global gradient norm; 0: never clip");
}

void add_evaluating_and_saving(Table& table) {
    table.group = "Evaluating and saving";
    table.add("eval_every", &R::eval_every, "N", "steps between evaluations; 0: none");
    table.add("eval_batches", &R::eval_batches, "N", "micro-batches of an evaluation");
    table.add("save_every", &R::save_every, "N", "steps between checkpoints; 0: only at the end, or when stopped");
    table.add("keep", &R::keep, "N",
              "checkpoints that are kept: the newest ones, and always the newest that a finite step followed");
    table.add("resume", &R::resume, "",
              "go on from the newest checkpoint of --output, by the run's own plan; other options win over that");
    table.add(
        "resume_from", &R::resume_from, "STEP",
        "go on from the checkpoint of this step instead; newer ones are kept under another name; 0: from the newest");
    table.add(
        "allow_changed_data", &R::allow_changed_data, "",
        "with --resume: go on although the files of --data hold something else than when the checkpoint was saved");
    table.add("stop_after", &R::stop_after, "N", "steps of this process; then save and stop; 0: all");
    table.add("non_finite_limit", &R::non_finite_limit, "N", "steps in a row without a finite loss that end the run");
    table.add("metrics", &R::metrics, "FILE", "one JSON object per step");
    table.add("tensorboard", &R::tensorboard, "", "TensorBoard event files in the output folder");
    table.add("dump_step0", &R::dump_step0, "FILE",
              "safetensors with the first step's logits and gradients, before clipping");
    table.add("report", &R::report, "FILE",
              "write a page that shows which model data is on the device at which time; with --device-memory");
    table.add("dry_run", &R::dry_run, "", "show plan and memory, and stop there");
}

} // namespace

std::span<const RunOption> run_options() {
    static const std::vector<RunOption> options = [] {
        Table table;
        add_model_and_data(table);
        add_workload(table);
        add_machine(table);
        add_many_ranks(table);
        add_optimizer(table);
        add_evaluating_and_saving(table);
        return std::move(table.rows);
    }();
    return options;
}

} // namespace tutti::run

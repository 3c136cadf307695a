#include "run/run_config.h"

#include "base/error.h"
#include "base/file.h"
#include "costs/device_kind.h"
#include "run/layout.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <numbers>

namespace tutti::run {
namespace {

constexpr std::array<std::pair<LearningRateSchedule, std::string_view>, 4> schedules = {{
    {LearningRateSchedule::constant, "constant"},
    {LearningRateSchedule::linear, "linear"},
    {LearningRateSchedule::cosine, "cosine"},
    {LearningRateSchedule::warmup_stable_decay, "wsd"},
}};

constexpr std::array<std::pair<Connection, std::string_view>, 3> connections = {
    {{Connection::automatic, "auto"}, {Connection::threads, "threads"}, {Connection::mpi, "mpi"}}};

constexpr std::array<std::pair<ActivationOffload, std::string_view>, 3> activation_offloads = {
    {{ActivationOffload::none, "none"}, {ActivationOffload::automatic, "auto"}, {ActivationOffload::full, "full"}}};

template <class Table, class Value>
std::string_view name_in(const Table& table, Value value) {
    for (const auto& [one, name] : table)
        if (one == value) return name;
    return "?";
}

template <class Value, std::size_t count>
std::optional<Value> value_in(const std::array<std::pair<Value, std::string_view>, count>& table,
                              std::string_view name) {
    for (const auto& [one, known] : table)
        if (known == name) return one;
    return std::nullopt;
}

template <class T>
void at_least(const char* key, T value, T least) {
    if (!(value >= least)) fail("{} is {}; it has to be at least {}", key, value, least);
}

// Of sequences and tokens: products of two of them stay far from the end of 64 bits.
constexpr std::int64_t largest_count = 1'000'000'000;

void is_count(const char* key, std::int64_t value, std::int64_t least) {
    if (value < least || value > largest_count)
        fail("{} is {}; it has to be from {} to {}", key, value, least, largest_count);
}

void is_share(const char* key, double value) {
    if (!(value >= 0 && value <= 1)) fail("{} is {}; it has to be from 0 to 1", key, value);
}

// What the system would refuse with a word, in a sentence. `inside`: how much longer the names of files in it are.
void is_path(const char* key, const std::string& path, std::size_t inside = 0) {
    const std::size_t longest = PATH_MAX - 1 - inside;
    if (path.size() > longest)
        fail("{} is a path of {} characters; the longest that this system takes here has {}", key, path.size(),
             longest);
    for (const fs::path& name : fs::path(path))
        if (name.native().size() > NAME_MAX)
            fail("{} holds a name of {} characters; the longest that this system takes has {}", key,
                 name.native().size(), NAME_MAX);
}

bool is_root(const fs::path& path) {
    std::error_code ignored; // what cannot be resolved is told when it is opened
    const fs::path whole = fs::weakly_canonical(path, ignored);
    return !whole.empty() && whole == whole.root_path();
}

// Offloading options need a device_memory that causes offloading; a plan file has its own.
void check_offload(const RunConfig& config) {
    if (config.device_memory.count > 0 || !config.plan.empty()) return;
    auto needs_limit = [](const char* key, const auto& value) {
        fail("{} is {}, and device_memory has no limit, so that all model data stays on the device: --device-memory "
             "sets "
             "one",
             key, value);
    };
    const RunConfig usual;
    if (config.offload_activations != usual.offload_activations)
        needs_limit("offload_activations", name_of(config.offload_activations));
    if (config.host_memory != usual.host_memory) needs_limit("host_memory", to_string(config.host_memory));
    if (config.disk != usual.disk) needs_limit("disk", config.disk);
    if (config.optimizer_placement != usual.optimizer_placement)
        needs_limit("optimizer_placement", offload::name_of(config.optimizer_placement));
    if (config.eviction != usual.eviction) needs_limit("eviction", offload::name_of(config.eviction));
    if (config.prefetch != usual.prefetch) needs_limit("prefetch", config.prefetch);
    if (config.updates == offload::UpdateTime::next) needs_limit("updates", offload::name_of(config.updates));
}

} // namespace

std::string_view name_of(LearningRateSchedule schedule) { return name_in(schedules, schedule); }
std::optional<LearningRateSchedule> parse_schedule(std::string_view name) { return value_in(schedules, name); }
std::string_view name_of(Connection connection) { return name_in(connections, connection); }
std::optional<Connection> parse_connection(std::string_view name) { return value_in(connections, name); }

std::string_view name_of(ActivationOffload offload) { return name_in(activation_offloads, offload); }
std::optional<ActivationOffload> parse_activation_offload(std::string_view name) {
    return value_in(activation_offloads, name);
}

std::string to_string(const RecomputeAmount& amount) {
    if (amount.automatic) return "auto";
    if (amount.share == 0 || amount.share == 1) return amount.share == 0 ? "none" : "full";
    return fmt::format("{}", amount.share);
}

std::optional<RecomputeAmount> parse_recompute(std::string_view text) {
    if (text == "none") return RecomputeAmount{};
    if (text == "auto") return RecomputeAmount{.automatic = true};
    if (text == "full") return RecomputeAmount{.share = 1};
    double share = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
    if (error != std::errc{} || end != text.data() + text.size() || !(share >= 0 && share <= 1)) return std::nullopt;
    return RecomputeAmount{.share = share + 0.0}; // no -0
}

namespace {

// A GPU that need not be here has memory, but no speed that could be timed.
void check_gpu(const RunConfig& config) {
    if (config.gpu.empty()) return;
    const costs::DeviceKind* preset = costs::find_device_preset(config.gpu);
    if (!preset) {
        std::vector<std::string_view> names;
        for (const costs::DeviceKind& kind : costs::device_presets()) names.push_back(kind.name);
        fail("gpu is {}, and Tutti knows {}", config.gpu, fmt::join(names, ", "));
    }
    if (config.device != preset->run_device)
        fail("gpu is {} and device is {}: --gpu is for --device {}", config.gpu, config.device, preset->run_device);
    if (!config.dry_run)
        fail("gpu is {}, for a memory table without the GPU: --gpu is for --dry-run, and a run takes the GPU that is "
             "here",
             config.gpu);
    if (config.device_memory.count > 0)
        fail("gpu is {} and device_memory is {}: what stays on the device follows from speeds that are timed there, so "
             "--device-memory needs the GPU itself",
             config.gpu, to_string(config.device_memory));
}

void check_counts(const RunConfig& config) {
    at_least<std::int64_t>("steps", config.steps, 1);
    is_count("sequence", config.workload.sequence, 0);
    is_count("global_batch", config.workload.global_batch, 0);
    is_count("micro_batch", config.workload.micro_batch, 0);
    at_least("threads", config.threads, 0);
    at_least<std::int64_t>("chunk_elements", config.chunk_elements, 0);
    at_least<std::int64_t>("warmup", config.warmup, 0);
    at_least<std::int64_t>("eval_every", config.eval_every, 0);
    is_count("eval_batches", config.eval_batches, 1);
    at_least<std::int64_t>("save_every", config.save_every, 0);
    at_least<std::int64_t>("keep", config.keep, 1);
    at_least<std::int64_t>("resume_from", config.resume_from, 0);
    at_least<std::int64_t>("stop_after", config.stop_after, 0);
    at_least<std::int64_t>("non_finite_limit", config.non_finite_limit, 1);
}

void check_optimizer(const RunConfig& config) {
    at_least("lr", config.lr, 0.0);
    at_least("eps", config.eps, 0.0);
    at_least("weight_decay", config.weight_decay, 0.0);
    at_least("clip", config.clip, 0.0);
    for (double beta : {config.beta1, config.beta2})
        if (!(beta >= 0 && beta < 1))
            fail("betas is {},{}; both have to be at least 0 and below 1, as in 0.9,0.95", config.beta1, config.beta2);
    if (config.updates == offload::UpdateTime::backward && config.clip > 0)
        fail("updates is backward and clip is {}: before the backward ends there is no norm to clip by; --clip 0 never "
             "clips",
             config.clip);
    is_share("lr_min", config.lr_min);
    is_share("decay_share", config.decay_share);
    for (double value : {config.lr, config.eps, config.weight_decay, config.clip})
        if (!std::isfinite(value)) fail("lr, eps, weight_decay and clip have to be finite; one of them is {}", value);
}

void check_paths(const RunConfig& config) {
    is_path("model", config.model);
    is_path("data", config.data);
    is_path("eval_data", config.eval_data);
    is_path("output", config.output, 64);
    is_path("metrics", config.metrics);
    is_path("dump_step0", config.dump_step0);
    is_path("plan", config.plan);
    is_path("trace", config.trace);
    is_path("disk", config.disk, 64);
    if (!config.disk.empty() && !is_folder(config.disk))
        fail("disk is {}, and {}", config.disk,
             is_there(config.disk) ? "that is not a folder" : "there is no such folder");
}

void check_types(const Precision& types) {
    if (types.master == DType::bfloat16 && types.compute != DType::bfloat16)
        fail("master is bf16 but dtype is {}: only with --dtype bf16 are there master weights to do without",
             name_of(types.compute));
    if (types.gradients == DType::bfloat16 && types.compute != DType::bfloat16)
        fail("gradients is bf16 but dtype is {}: only with --dtype bf16 may gradients of parameters be that narrow",
             name_of(types.compute));
    if (types.moments == DType::bfloat16 && types.compute == DType::float64)
        fail("moments is bf16 but dtype is float64, which keeps everything in float64");
}

void check_output(const RunConfig& config) {
    if (config.save_every > 0 && config.output.empty())
        fail("save_every is {} but there is no output folder to save to: give --output DIR", config.save_every);
    if (is_root(config.output))
        fail("output is {}, the root of the file system; it has to be a folder for this run", config.output);
    if (config.resumes() && config.output.empty())
        fail("{} needs the run's folder: give --output DIR", config.resume ? "resume" : "resume_from");
}

} // namespace

void check(const RunConfig& config) {
    check_counts(config);
    check_optimizer(config);
    check_paths(config);
    check_offload(config);
    check_gpu(config);
    check_types(config.precision);
    check_output(config);
    check_layout(config);
}

double learning_rate(const RunConfig& config, std::int64_t step) {
    if (step < config.warmup) return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup);
    const double floor = config.lr * config.lr_min;
    auto progress = [&](std::int64_t from) { // 0 at `from`, 1 at the last step
        const double length = static_cast<double>(config.steps - 1 - from);
        return length <= 0 ? 1.0 : static_cast<double>(step - from) / length;
    };
    switch (config.lr_schedule) {
    case LearningRateSchedule::constant: return config.lr;
    case LearningRateSchedule::linear: return config.lr + (floor - config.lr) * progress(config.warmup);
    case LearningRateSchedule::cosine:
        return floor + (config.lr - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress(config.warmup)));
    case LearningRateSchedule::warmup_stable_decay: {
        const auto decay =
            static_cast<std::int64_t>(std::llround(config.decay_share * static_cast<double>(config.steps)));
        const std::int64_t from = std::max(config.warmup, config.steps - decay);
        return step < from ? config.lr : config.lr + (floor - config.lr) * progress(from - 1);
    }
    }
    return config.lr;
}

} // namespace tutti::run

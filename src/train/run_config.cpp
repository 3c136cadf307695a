#include "train/run_config.h"

#include "base/error.h"

#include <array>
#include <cmath>
#include <numbers>

namespace tutti {
namespace {

constexpr std::array<std::pair<LearningRateSchedule, std::string_view>, 4> schedules = {{
    {LearningRateSchedule::constant, "constant"},
    {LearningRateSchedule::linear, "linear"},
    {LearningRateSchedule::cosine, "cosine"},
    {LearningRateSchedule::warmup_stable_decay, "wsd"},
}};

void at_least(const char* key, double value, double least) {
    if (!(value >= least)) fail("{} is {}; it has to be at least {}", key, value, least);
}

void within(const char* key, double value, double low, double high, const char* range) {
    if (!(value >= low && value < high)) fail("{} is {}; it has to be in {}", key, value, range);
}

} // namespace

std::string_view name_of(LearningRateSchedule schedule) {
    for (const auto& [value, name] : schedules)
        if (value == schedule) return name;
    return "?";
}

std::optional<LearningRateSchedule> parse_schedule(std::string_view name) {
    for (const auto& [value, known] : schedules)
        if (known == name) return value;
    return std::nullopt;
}

void check(const RunConfig& config) {
    at_least("steps", static_cast<double>(config.steps), 1);
    at_least("sequence", static_cast<double>(config.sequence), 0);
    at_least("global_batch", static_cast<double>(config.global_batch), 0);
    at_least("micro_batch", static_cast<double>(config.micro_batch), 0);
    at_least("threads", config.threads, 0);
    at_least("chunk_elements", static_cast<double>(config.chunk_elements), 1);
    at_least("warmup", static_cast<double>(config.warmup), 0);
    at_least("eval_every", static_cast<double>(config.eval_every), 0);
    at_least("eval_batches", static_cast<double>(config.eval_batches), 1);
    at_least("save_every", static_cast<double>(config.save_every), 0);
    at_least("keep", static_cast<double>(config.keep), 1);
    at_least("stop_after", static_cast<double>(config.stop_after), 0);
    at_least("non_finite_limit", static_cast<double>(config.non_finite_limit), 1);
    at_least("lr", config.lr, 0);
    at_least("eps", config.eps, 0);
    at_least("weight_decay", config.weight_decay, 0);
    at_least("clip", config.clip, 0);
    within("beta1", config.beta1, 0, 1, "[0, 1)");
    within("beta2", config.beta2, 0, 1, "[0, 1)");
    within("lr_min", config.lr_min, 0, std::nextafter(1.0, 2.0), "[0, 1]");
    within("decay_share", config.decay_share, 0, std::nextafter(1.0, 2.0), "[0, 1]");
    for (double value : {config.lr, config.eps, config.weight_decay, config.clip})
        if (!std::isfinite(value)) fail("lr, eps, weight_decay and clip have to be finite; one of them is {}", value);
    if (config.master == DType::bfloat16 && config.dtype != DType::bfloat16)
        fail("master is bf16 but dtype is {}: only with --dtype bf16 are there master weights to do without",
             name_of(config.dtype));
    if (config.moments == DType::bfloat16 && config.dtype == DType::float64)
        fail("moments is bf16 but dtype is float64, which keeps everything in float64");
    if (config.save_every > 0 && config.output.empty())
        fail("save_every is {} but there is no output folder to save to: give --output DIR", config.save_every);
    if (config.resume && config.output.empty()) fail("resume needs the run's folder: give --output DIR");
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

} // namespace tutti

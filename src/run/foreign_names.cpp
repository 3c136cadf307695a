#include "run/foreign_names.h"

#include "run/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti::run {
namespace {

struct ForeignName {
    std::string_view name;
    std::string_view answer;                // {} stands for the options
    std::array<std::string_view, 2> keys{}; // their keys
};

constexpr std::string_view called = "is called {} here";
constexpr ForeignName foreign_names[] = {
    {"learning_rate", called, {"lr"}},
    {"lr_scheduler_type", called, {"lr_schedule"}},
    {"warmup_steps", called, {"warmup"}},
    {"max_grad_norm", called, {"clip"}},
    {"max_steps", called, {"steps"}},
    {"num_train_epochs", "is called {} here, and counts optimizer steps", {"steps"}},
    {"per_device_train_batch_size", called, {"micro_batch"}},
    {"gradient_accumulation_steps", "follows here from {} and {}", {"global_batch", "micro_batch"}},
    {"bf16", "is {} bf16 here", {"dtype"}},
    {"output_dir", called, {"output"}},
    {"save_steps", called, {"save_every"}},
    {"save_total_limit", called, {"keep"}},
    {"eval_steps", called, {"eval_every"}},
    {"logging_steps", "is not needed here: {} has every step", {"metrics"}},
    {"resume_from_checkpoint", called, {"resume"}},
};

} // namespace

std::string answer_to_foreign_name(std::string_view name) {
    const bool is_flag = name.starts_with("--");
    std::string key(is_flag ? name.substr(2) : name);
    std::ranges::replace(key, '-', '_');
    const auto* found = std::ranges::find(foreign_names, key, &ForeignName::name);
    if (found == std::end(foreign_names)) return "";
    auto shown = [&](std::string_view own) { return is_flag ? flag_of(own) : std::string(own); };
    return fmt::format("{} {}", name,
                       fmt::format(fmt::runtime(found->answer), shown(found->keys[0]), shown(found->keys[1])));
}

} // namespace tutti::run

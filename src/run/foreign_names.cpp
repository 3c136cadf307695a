#include "run/foreign_names.h"

#include "run/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace tutti::run {
namespace {

struct ForeignName {
    std::string_view name;
    std::string_view answer;                // {} stands for the options
    std::array<std::string_view, 2> keys{}; // their keys
};

constexpr std::string_view called = "is called {} here";
constexpr std::string_view of_the_model =
    "comes with the model here: a built-in name, or a folder whose config.json says it";

constexpr ForeignName of_hugging_face[] = {
    {"learning_rate", called, {"lr"}},
    {"lr_scheduler_type", called, {"lr_schedule"}},
    {"warmup_steps", called, {"warmup"}},
    {"warmup_ratio", "is {} here, and counts steps", {"warmup"}},
    {"max_grad_norm", called, {"clip"}},
    {"max_steps", called, {"steps"}},
    {"num_train_epochs", "is called {} here, and counts optimizer steps", {"steps"}},
    {"per_device_train_batch_size", called, {"micro_batch"}},
    {"gradient_accumulation_steps", "follows here from {} and {}", {"global_batch", "micro_batch"}},
    {"gradient_checkpointing", "is {} full here", {"recompute"}},
    {"bf16", "is {} bf16 here", {"dtype"}},
    {"fp16", "is none of the types here; {} bf16 needs no loss scaling", {"dtype"}},
    {"torch_dtype", called, {"dtype"}},
    {"fsdp", "is {} 3 here", {"zero"}},
    {"adam_epsilon", called, {"eps"}},
    {"optim", "is AdamW here, always: {} and {} are its settings", {"betas", "weight_decay"}},
    {"output_dir", called, {"output"}},
    {"model_name_or_path", "comes first here, without a name: tutti train MODEL"},
    {"train_file", called, {"data"}},
    {"dataset_name", "is {} here, and names a file", {"data"}},
    {"validation_file", called, {"eval_data"}},
    {"save_steps", called, {"save_every"}},
    {"save_total_limit", called, {"keep"}},
    {"eval_steps", called, {"eval_every"}},
    {"logging_steps", "is not needed here: {} has every step", {"metrics"}},
    {"logging_dir", "is not needed here: with {}, event files are in {}", {"tensorboard", "output"}},
    {"resume_from_checkpoint", called, {"resume"}},
};

constexpr ForeignName of_megatron[] = {
    {"tensor_model_parallel_size", "is {} tensor=N here", {"mesh"}},
    {"pipeline_model_parallel_size", "is {} pipe=N here", {"mesh"}},
    {"data_parallel_size", "is {} data=N here", {"mesh"}},
    {"context_parallel_size", "has no counterpart here: there is no context axis"},
    {"expert_model_parallel_size", "has no counterpart here: there is no expert axis"},
    {"num_layers_per_virtual_pipeline_stage", "follows here from {}", {"stages_per_rank"}},
    {"virtual_pipeline_model_parallel_size", called, {"stages_per_rank"}},
    {"world_size", called, {"ranks"}},
    {"train_iters", called, {"steps"}},
    {"train_samples", "is {} here, and counts optimizer steps", {"steps"}},
    {"seq_length", called, {"sequence"}},
    {"micro_batch_size", called, {"micro_batch"}},
    {"global_batch_size", called, {"global_batch"}},
    {"clip_grad", called, {"clip"}},
    {"min_lr", "is {} here, and a share of {}", {"lr_min", "lr"}},
    {"lr_decay_style", called, {"lr_schedule"}},
    {"lr_decay_iters", "is not told apart here: the learning rate falls until the last of {}", {"steps"}},
    {"lr_wsd_decay_iters", "is {} here, a share of all steps", {"decay_share"}},
    {"lr_warmup_iters", called, {"warmup"}},
    {"lr_warmup_fraction", "is {} here, and counts steps", {"warmup"}},
    {"lr_warmup_samples", "is {} here, and counts steps", {"warmup"}},
    {"adam_beta1", "is the first of {} here", {"betas"}},
    {"adam_beta2", "is the second of {} here", {"betas"}},
    {"adam_eps", called, {"eps"}},
    {"optimizer", "is AdamW here, always: {} and {} are its settings", {"betas", "weight_decay"}},
    {"use_distributed_optimizer", "is {} 1 here", {"zero"}},
    {"recompute_granularity", "is {} here, which takes whole layers", {"recompute"}},
    {"recompute_method", "is {} here, which takes a share of the layers", {"recompute"}},
    {"recompute_num_layers", "is {} here, which takes a share of the layers", {"recompute"}},
    {"recompute_activations", "is {} full here", {"recompute"}},
    {"cpu_offloading", "is {} SIZE here", {"device_memory"}},
    {"main_params_dtype", called, {"master"}},
    {"main_grads_dtype", called, {"gradients"}},
    {"exp_avg_dtype", called, {"moments"}},
    {"params_dtype", called, {"dtype"}},
    {"data_path", called, {"data"}},
    {"train_data_path", called, {"data"}},
    {"valid_data_path", called, {"eval_data"}},
    {"save", called, {"output"}},
    {"load", "is {} here, from {}", {"resume", "output"}},
    {"ckpt_step", called, {"resume_from"}},
    {"save_interval", called, {"save_every"}},
    {"eval_interval", called, {"eval_every"}},
    {"eval_iters", called, {"eval_batches"}},
    {"exit_interval", called, {"stop_after"}},
    {"log_interval", "is not needed here: {} has every step", {"metrics"}},
    {"tensorboard_dir", "is not needed here: with {}, event files are in {}", {"tensorboard", "output"}},
    {"distributed_backend", "is {} here", {"comm"}},
    {"distributed_timeout_minutes", "is {} here, in seconds", {"timeout"}},
    {"num_layers", of_the_model},
    {"hidden_size", of_the_model},
    {"ffn_hidden_size", of_the_model},
    {"num_attention_heads", of_the_model},
    {"num_query_groups", of_the_model},
    {"max_position_embeddings", of_the_model},
    {"vocab_size", of_the_model},
    {"attention_dropout", of_the_model},
    {"hidden_dropout", of_the_model},
    {"tokenizer_type", "has no counterpart here: {} holds tokens, or text for models whose tokens are bytes", {"data"}},
    {"tokenizer_model",
     "has no counterpart here: {} holds tokens, or text for models whose tokens are bytes",
     {"data"}},
};

constexpr ForeignName of_deepspeed_and_others[] = {
    {"zero_stage", called, {"zero"}},
    {"stage", called, {"zero"}},
    {"zero_optimization", called, {"zero"}},
    {"train_batch_size", called, {"global_batch"}},
    {"train_micro_batch_size_per_gpu", called, {"micro_batch"}},
    {"gradient_clipping", called, {"clip"}},
    {"activation_checkpointing", "is {} full here", {"recompute"}},
    {"offload_optimizer", "is {} SIZE here, with {}", {"device_memory", "optimizer_placement"}},
    {"offload_param", "is {} SIZE here", {"device_memory"}},
    {"cpu_offload", "is {} SIZE here", {"device_memory"}},
    {"nvme_path", called, {"disk"}},
    {"num_gpus", called, {"ranks"}},
    {"nproc_per_node", called, {"ranks"}},
    {"tensor_parallel_size", "is {} tensor=N here", {"mesh"}},
    {"pipeline_parallel_size", "is {} pipe=N here", {"mesh"}},
    {"tp", "is {} tensor=N here", {"mesh"}},
    {"pp", "is {} pipe=N here", {"mesh"}},
    {"dp", "is {} data=N here", {"mesh"}},
    {"batch_size", "is {} here, and {} for those of one forward pass", {"global_batch", "micro_batch"}},
    {"seq_len", called, {"sequence"}},
    {"sequence_length", called, {"sequence"}},
    {"max_seq_length", called, {"sequence"}},
    {"max_length", called, {"sequence"}},
    {"block_size", called, {"sequence"}},
    {"context_length", called, {"sequence"}},
    {"epochs", "is {} here, and counts optimizer steps", {"steps"}},
    {"num_epochs", "is {} here, and counts optimizer steps", {"steps"}},
    {"iterations", called, {"steps"}},
    {"max_iters", called, {"steps"}},
    {"grad_clip", called, {"clip"}},
    {"lr_scheduler", called, {"lr_schedule"}},
    {"scheduler", called, {"lr_schedule"}},
    {"mixed_precision", called, {"dtype"}},
    {"precision", called, {"dtype"}},
};

// In the words of a file, or of a command line.
std::string answered(const ForeignName& found, bool is_flag) {
    auto shown = [&](std::string_view own) { return is_flag ? flag_of(own) : std::string(own); };
    return fmt::format(fmt::runtime(found.answer), shown(found.keys[0]), shown(found.keys[1]));
}

} // namespace

std::string answer_to_foreign_name(std::string_view name) {
    const bool is_flag = name.starts_with("--");
    std::string key(is_flag ? name.substr(2) : name);
    std::ranges::replace(key, '-', '_');
    for (const std::span<const ForeignName> names :
         {std::span<const ForeignName>(of_hugging_face), std::span<const ForeignName>(of_megatron),
          std::span<const ForeignName>(of_deepspeed_and_others)})
        if (const auto found = std::ranges::find(names, key, &ForeignName::name); found != names.end())
            return fmt::format("{} {}", name, answered(*found, is_flag));
    return "";
}

} // namespace tutti::run

// Gemma: Llama with norms that scale by 1 + weight, embeddings times sqrt(hidden), and a gate of GELU.
#include "models/huggingface/decoder.h"

#include <algorithm>

namespace tutti::models::huggingface {
namespace {

// Transformers 4 wrote hidden_activation beside a hidden_act that it did not use, version 5 only hidden_act. Where both
// are there, the former is what the model was trained with.
Keys gemma_keys() {
    Keys all = decoder_keys({.vocabulary = 256000,
                             .hidden = 3072,
                             .intermediate = 24576,
                             .layers = 28,
                             .heads = 16,
                             .key_heads = 16,
                             .head_size = 256,
                             .positions = 8192,
                             .tied = true,
                             .padding = 0}) +
               Keys{{"attention_bias", Kind::flag, false}, {"hidden_activation", Kind::free}};
    std::ranges::find(all, "hidden_act", &Key::name)->otherwise = "gelu_pytorch_tanh";
    return all;
}

std::string activation(const Config& config) {
    if (!config.given("hidden_activation")) return config.text("hidden_act");
    const nlohmann::json& name = config.value("hidden_activation");
    if (!name.is_string() || !std::ranges::count(activation_names(), name.get_ref<const std::string&>()))
        config.reject("hidden_activation",
                      fmt::format("it must be null or one of {}", fmt::join(activation_names(), ", ")));
    return name.get<std::string>();
}

} // namespace

Family gemma() {
    return {
        .architecture = "GemmaForCausalLM",
        .model_type = "gemma",
        .base_prefix = "model.",
        .keys = gemma_keys(),
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                const bool bias = config.flag("attention_bias");
                return decoder_logits(builder, config,
                                      {.query_bias = bias,
                                       .output_bias = bias,
                                       .unit_offset = true,
                                       .scaled_embedding = true,
                                       .activation = activation(config)});
            },
    };
}

} // namespace tutti::models::huggingface

// Qwen3: Llama with queries and keys normalised per head, and heads whose size is a key of its own.
#include "models/huggingface/decoder.h"

namespace tutti::models::huggingface {

Family qwen3() {
    return {
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .base_prefix = "model.",
        .keys = qwen_keys(128) + Keys{{"attention_bias", Kind::flag, false}},
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                const bool bias = config.flag("attention_bias");
                return decoder_logits(builder, config,
                                      {.query_bias = bias,
                                       .output_bias = bias,
                                       .query_norms = QueryNorms::per_head,
                                       .activation = config.text("hidden_act"),
                                       .windows = windows_of_some_layers(config)});
            },
    };
}

} // namespace tutti::models::huggingface

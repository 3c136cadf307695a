// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.
#include "models/huggingface/decoder.h"

namespace tutti::models::huggingface {

Family qwen2() {
    return {
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .base_prefix = "model.",
        .keys = qwen_keys(nullptr),
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                return decoder_logits(builder, config,
                                      {.query_bias = true,
                                       .activation = config.text("hidden_act"),
                                       .windows = windows_of_some_layers(config)});
            },
    };
}

} // namespace tutti::models::huggingface

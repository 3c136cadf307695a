// Mistral: Llama with a sliding window over all layers.
#include "models/huggingface/decoder.h"

namespace tutti::models::huggingface {

Family mistral() {
    return {
        .architecture = "MistralForCausalLM",
        .model_type = "mistral",
        .base_prefix = "model.",
        .keys = decoder_keys({.vocabulary = 32000,
                              .hidden = 4096,
                              .intermediate = 14336,
                              .layers = 32,
                              .heads = 32,
                              .key_heads = 8,
                              .head_size = nullptr,
                              .positions = 131072}) +
                Keys{{"sliding_window", Kind::optional_size, 4096}},
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                return decoder_logits(
                    builder, config,
                    {.activation = config.text("hidden_act"), .windows = window_of_all_layers(config)});
            },
    };
}

} // namespace tutti::models::huggingface

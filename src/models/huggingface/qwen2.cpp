// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.
#include "models/huggingface/decoder.h"

namespace tutti::huggingface {

Family qwen2() {
    return {
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .base_prefix = "model.",
        .positions_key = "max_position_embeddings",
        .keys = decoder_keys({.vocabulary = 151936,
                              .hidden = 4096,
                              .intermediate = 22016,
                              .layers = 32,
                              .heads = 32,
                              .key_heads = 32,
                              .head_size = nullptr,
                              .positions = 32768}) +
                window_keys(),
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                check_layer_windows(builder, config);
                return decoder_logits(builder, config, {.query_bias = true, .activation = config.text("hidden_act")});
            },
    };
}

} // namespace tutti::huggingface

// Llama 1 to 3, and the many models that took its architecture.
#include "models/huggingface/decoder.h"

namespace tutti::models::huggingface {

Family llama() {
    return {
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .base_prefix = "model.",
        .keys = decoder_keys({.vocabulary = 32000,
                              .hidden = 4096,
                              .intermediate = 11008,
                              .layers = 32,
                              .heads = 32,
                              .key_heads = nullptr,
                              .head_size = nullptr,
                              .positions = 2048}) +
                Keys{{"attention_bias", Kind::flag, false},
                     {"mlp_bias", Kind::flag, false},
                     {"pretraining_tp", Kind::ignored}}, // how the matrices were split while training
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                const bool bias = config.flag("attention_bias");
                return decoder_logits(builder, config,
                                      {.query_bias = bias,
                                       .output_bias = bias,
                                       .feed_forward_bias = config.flag("mlp_bias"),
                                       .activation = config.text("hidden_act")});
            },
    };
}

} // namespace tutti::models::huggingface

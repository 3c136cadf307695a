// OLMo 2: Llama with the norms behind attention and feed-forward, and queries and keys normalised over all heads.
#include "models/huggingface/decoder.h"

#include <algorithm>

namespace tutti::models::huggingface {
namespace {

Keys olmo2_keys() {
    Keys all = decoder_keys({.vocabulary = 50304,
                             .hidden = 4096,
                             .intermediate = 11008,
                             .layers = 32,
                             .heads = 32,
                             .key_heads = nullptr,
                             .head_size = nullptr,
                             .positions = 2048,
                             .padding = 1}) +
               Keys{{"attention_bias", Kind::flag, false}};
    std::ranges::find(all, "rms_norm_eps", &Key::name)->otherwise = 1e-5;
    return all;
}

} // namespace

Family olmo2() {
    return {
        .architecture = "Olmo2ForCausalLM",
        .model_type = "olmo2",
        .base_prefix = "model.",
        .keys = olmo2_keys(),
        .facts = rotary_position_facts,
        .logits =
            [](Builder& builder, const Config& config) {
                const bool bias = config.flag("attention_bias");
                return decoder_logits(builder, config,
                                      {.query_bias = bias,
                                       .output_bias = bias,
                                       .query_norms = QueryNorms::all_heads,
                                       .norms_after = true,
                                       .activation = config.text("hidden_act")});
            },
    };
}

} // namespace tutti::models::huggingface

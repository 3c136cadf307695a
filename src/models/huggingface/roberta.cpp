// RoBERTa with its masked-language-model head. Positions are counted from the padding token's row on, and skip padding.
#include "models/huggingface/encoder.h"

namespace tutti::models::huggingface {
namespace {

std::int64_t padding_of(const Config& config) {
    const std::optional<std::int64_t> padding = config.optional_integer("pad_token_id");
    if (!padding || *padding < 0) config.reject("pad_token_id", "it must not be negative: positions start after it");
    return *padding;
}

ValueId roberta_logits(Builder& builder, const Config& config) {
    const std::int64_t padding = padding_of(config);
    const std::string head = "lm_head", table = "roberta.embeddings.position_embeddings";
    builder.set_deviation(config.real("initializer_range"));
    ValueId x = encoder(builder, config, "roberta", builder.positions_without_padding(padding, table), padding);
    x = builder.linear(x, head + ".dense", builder.width(x));
    x = builder.activation(x, "gelu", head);
    x = builder.layer_norm(x, head + ".layer_norm", config.real("layer_norm_eps"));
    return masked_head(builder, config, x, "roberta.embeddings.word_embeddings", head);
}

ModelFacts facts(const Config& config) {
    ModelFacts facts = learned_position_facts(config);
    facts.causal = false;
    facts.mask_token = config.optional_integer("mask_token_id").value_or(-1);
    facts.max_sequence -= padding_of(config) + 1;
    facts.context = facts.max_sequence;
    if (facts.max_sequence < 1)
        config.reject("max_position_embeddings",
                      fmt::format("positions start after \"pad_token_id\", which is {}", padding_of(config)));
    return facts;
}

} // namespace

Family roberta() {
    return {
        .architecture = "RobertaForMaskedLM",
        .model_type = "roberta",
        .base_prefix = "roberta.",
        .keys = encoder_keys(50265, 1),
        .facts = facts,
        .logits = roberta_logits,
        // Transformers 4 kept one bias for both names, tied or not.
        .other_names = {{"lm_head.decoder.bias", "lm_head.bias"}, {"lm_head.bias", "lm_head.decoder.bias"}},
        .tied_copies = {"lm_head.decoder.weight", "lm_head.decoder.bias"},
    };
}

} // namespace tutti::models::huggingface

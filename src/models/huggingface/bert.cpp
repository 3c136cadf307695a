// BERT with its masked-language-model head.
#include "models/huggingface/encoder.h"

namespace tutti::models::huggingface {
namespace {

ValueId bert_logits(Builder& builder, const Config& config) {
    const std::string head = "cls.predictions", words = "bert.embeddings.word_embeddings";
    builder.set_deviation(config.real("initializer_range"));
    ValueId x = encoder(builder, config, "bert", builder.positions(0, "bert.embeddings.position_embeddings"), -1);
    x = builder.linear(x, head + ".transform.dense", builder.width(x));
    x = builder.activation(x, config.text("hidden_act"), head + ".transform");
    x = builder.layer_norm(x, head + ".transform.LayerNorm", config.real("layer_norm_eps"));
    return masked_head(builder, config, x, words, head);
}

} // namespace

Family bert() {
    return {
        .architecture = "BertForMaskedLM",
        .model_type = "bert",
        .base_prefix = "bert.",
        .keys = encoder_keys(30522, 0),
        .facts =
            [](const Config& config) {
                ModelFacts facts = learned_position_facts(config);
                facts.causal = false;
                facts.mask_token = config.optional_integer("mask_token_id").value_or(-1);
                return facts;
            },
        .logits = bert_logits,
        // Transformers 4 kept one bias for both names, tied or not.
        .other_names = {{"cls.predictions.decoder.bias", "cls.predictions.bias"},
                        {"cls.predictions.bias", "cls.predictions.decoder.bias"}},
        .tied_copies = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    };
}

} // namespace tutti::models::huggingface

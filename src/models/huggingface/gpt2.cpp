// GPT-2: learned positions, pre-norm blocks, one fused projection to queries, keys and values. Its linear layers are
// Conv1D, which store their matrices transposed.
#include "models/huggingface/family.h"

#include <cmath>

namespace tutti::models::huggingface {
namespace {

const Keys gpt2_keys = {
    {"vocab_size", Kind::size, 50257},
    {"n_positions", Kind::size, 1024, "max_position_embeddings"},
    {"n_embd", Kind::size, 768, "hidden_size"},
    {"n_layer", Kind::layers, 12, "num_hidden_layers"},
    {"n_head", Kind::size, 12, "num_attention_heads"},
    {"n_inner", Kind::optional_size}, // null: 4 n_embd
    {"activation_function", Kind::activation, "gelu_new"},
    {"resid_pdrop", Kind::probability, 0.1},
    {"embd_pdrop", Kind::probability, 0.1},
    {"attn_pdrop", Kind::probability, 0.1},
    {"layer_norm_epsilon", Kind::real, 1e-5},
    {"initializer_range", Kind::real, 0.02},
    {"scale_attn_weights", Kind::flag, true},
    {"scale_attn_by_inverse_layer_idx", Kind::flag, false},
    {"reorder_and_upcast_attn", Kind::only, false},
    {"tie_word_embeddings", Kind::flag, true},
    {"n_ctx", Kind::ignored}, // an older name of n_positions, beside it
    {"summary_type", Kind::ignored},
    {"summary_use_proj", Kind::ignored},
    {"summary_activation", Kind::ignored},
    {"summary_proj_to_labels", Kind::ignored},
    {"summary_first_dropout", Kind::ignored},
};

ValueId gpt2_attention(Builder& builder, const Config& config, ValueId x, std::int64_t layer, const std::string& name,
                       double projection_deviation) {
    const Heads heads = read_heads(config, "n_head", "n_embd");
    const ValueId fused = builder.conv1d(x, name + ".c_attn", 3 * builder.width(x), config.real("initializer_range"));
    std::vector<ValueId> parts = builder.split(fused, 3, name);
    for (ValueId& part : parts) part = builder.split_heads(part, heads.query, name);
    double scale = config.flag("scale_attn_weights") ? heads.scale() : 1;
    if (config.flag("scale_attn_by_inverse_layer_idx")) scale /= static_cast<double>(layer + 1);
    const ValueId mixed =
        builder.attention(parts[0], parts[1], parts[2], {true, scale, config.real("attn_pdrop")}, name);
    const ValueId out = builder.conv1d(mixed, name + ".c_proj", builder.width(x), projection_deviation);
    return builder.dropout(out, config.real("resid_pdrop"), name + ".resid_dropout");
}

ValueId gpt2_logits(Builder& builder, const Config& config) {
    const std::int64_t vocabulary = config.integer("vocab_size"), hidden = config.integer("n_embd"),
                       layers = config.integer("n_layer"),
                       inner = config.optional_integer("n_inner").value_or(4 * hidden);
    const double eps = config.real("layer_norm_epsilon"), deviation = config.real("initializer_range");
    // Two matrices per layer write to the residual stream: their deviation keeps its variance from growing with depth.
    const double projection = deviation / std::sqrt(2.0 * static_cast<double>(layers));
    builder.set_deviation(deviation);

    const ValueId tokens = builder.embedding(builder.input_ids(), "transformer.wte", vocabulary, hidden);
    const ValueId places = builder.embedding(builder.positions(0, "transformer.wpe"), "transformer.wpe",
                                             config.integer("n_positions"), hidden);
    ValueId x = builder.add(tokens, places, "transformer");
    x = builder.dropout(x, config.real("embd_pdrop"), "transformer.drop");
    for (std::int64_t i = 0; i < layers; ++i) {
        const std::string name = fmt::format("transformer.h.{}", i);
        ValueId y = builder.layer_norm(x, name + ".ln_1", eps);
        x = builder.add(x, gpt2_attention(builder, config, y, i, name + ".attn", projection), name);
        y = builder.layer_norm(x, name + ".ln_2", eps);
        y = builder.conv1d(y, name + ".mlp.c_fc", inner, deviation);
        y = builder.activation(y, config.text("activation_function"), name + ".mlp");
        y = builder.conv1d(y, name + ".mlp.c_proj", hidden, projection);
        x = builder.add(x, builder.dropout(y, config.real("resid_pdrop"), name + ".mlp.dropout"), name);
    }
    x = builder.layer_norm(x, "transformer.ln_f", eps);
    return language_head(builder, x, config.flag("tie_word_embeddings"), "transformer.wte", "lm_head", vocabulary);
}

} // namespace

Family gpt2() {
    return {
        .architecture = "GPT2LMHeadModel",
        .model_type = "gpt2",
        .base_prefix = "transformer.",
        .positions_key = "n_positions",
        .keys = gpt2_keys,
        .facts = [](const Config& config) -> ModelFacts {
            const std::int64_t positions = config.integer("n_positions");
            return {{}, true, config.integer("vocab_size"), positions, positions};
        },
        .logits = gpt2_logits,
    };
}

} // namespace tutti::models::huggingface

// OPT: learned positions that start at row 2, norms before or after each half, and optionally token embeddings of
// another width than the blocks.
#include "models/huggingface/family.h"

namespace tutti::models::huggingface {
namespace {

const Keys opt_keys = {
    {"vocab_size", Kind::size, 50272},
    {"hidden_size", Kind::size, 768},
    {"num_hidden_layers", Kind::layers, 12},
    {"ffn_dim", Kind::size, 3072},
    {"max_position_embeddings", Kind::size, 2048},
    {"num_attention_heads", Kind::size, 12},
    {"do_layer_norm_before", Kind::flag, true},
    {"_remove_final_layer_norm", Kind::flag, false},
    {"word_embed_proj_dim", Kind::optional_size}, // null: hidden_size
    {"dropout", Kind::probability, 0.1},
    {"attention_dropout", Kind::probability, 0.0},
    {"activation_function", Kind::activation, "relu"},
    {"activation_dropout", Kind::ignored}, // read by no version of the model
    {"layerdrop", Kind::only, 0.0},
    {"init_std", Kind::real, 0.02},
    {"enable_bias", Kind::flag, true},
    {"layer_norm_elementwise_affine", Kind::flag, true},
    {"tie_word_embeddings", Kind::flag, true},
    {"pad_token_id", Kind::token, 1}, // its embedding gets no gradient
};

constexpr double eps = 1e-5; // PyTorch's default; there is no key for it
constexpr std::int64_t first_position = 2;

ValueId opt_attention(Builder& builder, const Config& config, ValueId x, const std::string& name) {
    const Heads heads = read_heads(config, "num_attention_heads", "hidden_size");
    const bool bias = config.flag("enable_bias");
    auto project = [&](const char* part) {
        return builder.split_heads(builder.linear(x, name + part, builder.width(x), bias), heads.query, name);
    };
    const ValueId k = project(".k_proj"), v = project(".v_proj"), q = project(".q_proj");
    const ValueId mixed = builder.attention(q, k, v, {true, heads.scale(), config.real("attention_dropout")}, name);
    return builder.linear(mixed, name + ".out_proj", builder.width(x), bias);
}

ValueId opt_logits(Builder& builder, const Config& config) {
    const std::int64_t vocabulary = config.integer("vocab_size"), hidden = config.integer("hidden_size"),
                       narrow = config.optional_integer("word_embed_proj_dim").value_or(hidden);
    const bool before = config.flag("do_layer_norm_before"), bias = config.flag("enable_bias"),
               affine = config.flag("layer_norm_elementwise_affine");
    const double dropout = config.real("dropout");
    const std::string base = "model.decoder";
    builder.set_deviation(config.real("init_std"));

    ValueId x = builder.embedding(builder.input_ids(), base + ".embed_tokens", vocabulary, narrow, padding_row(config));
    if (narrow != hidden) x = builder.linear(x, base + ".project_in", hidden, false);
    const std::string table = base + ".embed_positions";
    const ValueId places = builder.embedding(builder.positions(first_position, table), table,
                                             config.integer("max_position_embeddings") + first_position, hidden);
    x = builder.add(x, places, base);
    for (std::int64_t i = 0; i < config.integer("num_hidden_layers"); ++i) {
        const std::string name = fmt::format("{}.layers.{}", base, i);
        auto norm = [&](ValueId y, const char* part) { return builder.layer_norm(y, name + part, eps, affine); };
        ValueId y = before ? norm(x, ".self_attn_layer_norm") : x;
        y = builder.dropout(opt_attention(builder, config, y, name + ".self_attn"), dropout,
                            name + ".self_attn.dropout");
        x = builder.add(x, y, name);
        if (!before) x = norm(x, ".self_attn_layer_norm");
        y = before ? norm(x, ".final_layer_norm") : x;
        y = builder.linear(y, name + ".fc1", config.integer("ffn_dim"), bias);
        y = builder.activation(y, config.text("activation_function"), name);
        y = builder.linear(y, name + ".fc2", hidden, bias);
        x = builder.add(x, builder.dropout(y, dropout, name + ".dropout"), name);
        if (!before) x = norm(x, ".final_layer_norm");
    }
    if (before && !config.flag("_remove_final_layer_norm"))
        x = builder.layer_norm(x, base + ".final_layer_norm", eps, affine);
    if (narrow != hidden) x = builder.linear(x, base + ".project_out", narrow, false);
    return language_head(builder, x, config.flag("tie_word_embeddings"), base + ".embed_tokens", "lm_head", vocabulary);
}

} // namespace

Family opt() {
    return {
        .architecture = "OPTForCausalLM",
        .model_type = "opt",
        .base_prefix = "model.",
        .keys = opt_keys,
        .facts = learned_position_facts,
        .logits = opt_logits,
    };
}

} // namespace tutti::models::huggingface

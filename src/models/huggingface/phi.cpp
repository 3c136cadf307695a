// Phi 1 to 2: attention and feed-forward read one norm side by side, part of each head is rotated, everything has a
// bias.
#include "models/huggingface/family.h"
#include "models/huggingface/rope.h"

namespace tutti::models::huggingface {
namespace {

const Keys phi_keys =
    Keys{
        {"vocab_size", Kind::size, 51200},
        {"hidden_size", Kind::size, 2048},
        {"intermediate_size", Kind::size, 8192},
        {"num_hidden_layers", Kind::layers, 24},
        {"num_attention_heads", Kind::size, 32},
        {"num_key_value_heads", Kind::optional_size},
        {"head_dim", Kind::optional_size},
        {"hidden_act", Kind::activation, "gelu_new"},
        {"max_position_embeddings", Kind::size, 2048},
        {"resid_pdrop", Kind::probability, 0.0},
        {"embd_pdrop", Kind::probability, 0.0},
        {"attention_dropout", Kind::probability, 0.0},
        {"initializer_range", Kind::real, 0.02},
        {"layer_norm_eps", Kind::real, 1e-5},
        {"qk_layernorm", Kind::flag, false},
        {"tie_word_embeddings", Kind::flag, false},
        {"pad_token_id", Kind::token}, // its embedding gets no gradient
    } +
    partial_rope_keys(0.5);

ValueId phi_attention(Builder& builder, const Config& config, const RotaryTables& tables, ValueId x,
                      const std::string& name) {
    const Heads heads = read_heads(config);
    auto project = [&](const char* part, std::int64_t count) {
        return builder.split_heads(builder.linear(x, name + part, count * heads.size), count, name);
    };
    ValueId q = project(".q_proj", heads.query), k = project(".k_proj", heads.key);
    const ValueId v = project(".v_proj", heads.key);
    if (config.flag("qk_layernorm")) {
        const double eps = config.real("layer_norm_eps");
        q = builder.layer_norm(q, name + ".q_layernorm", eps);
        k = builder.layer_norm(k, name + ".k_layernorm", eps);
    }
    q = builder.rotary(q, tables, name);
    k = builder.rotary(k, tables, name);
    const ValueId mixed = builder.attention(q, k, v, {true, heads.scale(), config.real("attention_dropout")}, name);
    return builder.linear(mixed, name + ".dense", builder.width(x));
}

ValueId phi_logits(Builder& builder, const Config& config) {
    const std::int64_t vocabulary = config.integer("vocab_size"), hidden = config.integer("hidden_size");
    const double eps = config.real("layer_norm_eps"), dropout = config.real("resid_pdrop");
    builder.set_deviation(config.real("initializer_range"));

    const RotaryTables tables =
        rotary_tables(builder, config, read_rope(config, read_heads(config).size), "model.rotary_emb");
    ValueId x = builder.embedding(builder.input_ids(), "model.embed_tokens", vocabulary, hidden, padding_row(config));
    x = builder.dropout(x, config.real("embd_pdrop"), "model.embed_dropout");
    for (std::int64_t i = 0; i < config.integer("num_hidden_layers"); ++i) {
        const std::string name = fmt::format("model.layers.{}", i);
        const ValueId y = builder.layer_norm(x, name + ".input_layernorm", eps);
        ValueId mixed = phi_attention(builder, config, tables, y, name + ".self_attn");
        mixed = builder.dropout(mixed, dropout, name + ".self_attn.resid_dropout");
        ValueId fed = builder.linear(y, name + ".mlp.fc1", config.integer("intermediate_size"));
        fed = builder.activation(fed, config.text("hidden_act"), name + ".mlp");
        fed = builder.linear(fed, name + ".mlp.fc2", hidden);
        fed = builder.dropout(fed, dropout, name + ".mlp.resid_dropout");
        x = builder.add(builder.add(mixed, fed, name), x, name);
    }
    x = builder.layer_norm(x, "model.final_layernorm", eps);
    return language_head(builder, x, config.flag("tie_word_embeddings"), "model.embed_tokens", "lm_head", vocabulary,
                         true);
}

} // namespace

Family phi() {
    return {
        .architecture = "PhiForCausalLM",
        .model_type = "phi",
        .base_prefix = "model.",
        .keys = phi_keys,
        .facts = rotary_position_facts,
        .logits = phi_logits,
    };
}

} // namespace tutti::models::huggingface

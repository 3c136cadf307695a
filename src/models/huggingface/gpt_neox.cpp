// GPT-NeoX and Pythia: part of each head is rotated; queries, keys and values of a head lie together in one fused
// projection; attention and feed-forward run side by side, or one after the other.
#include "models/huggingface/family.h"
#include "models/huggingface/rope.h"

namespace tutti::models::huggingface {
namespace {

const Keys gpt_neox_keys =
    Keys{
        {"vocab_size", Kind::size, 50432},
        {"hidden_size", Kind::size, 6144},
        {"num_hidden_layers", Kind::layers, 44},
        {"num_attention_heads", Kind::size, 64},
        {"intermediate_size", Kind::size, 24576},
        {"hidden_act", Kind::activation, "gelu"},
        {"attention_dropout", Kind::probability, 0.0},
        {"hidden_dropout", Kind::probability, 0.0},
        {"max_position_embeddings", Kind::size, 2048},
        {"initializer_range", Kind::real, 0.02},
        {"layer_norm_eps", Kind::real, 1e-5},
        {"use_parallel_residual", Kind::flag, true},
        {"attention_bias", Kind::flag, true},
        {"tie_word_embeddings", Kind::flag, false},
        {"is_decoder", Kind::ignored}, // the model is causal either way
    } +
    partial_rope_keys(0.25, "rotary_pct", "rotary_emb_base");

ValueId gpt_neox_attention(Builder& builder, const Config& config, const RotaryTables& tables, ValueId x,
                           const std::string& name) {
    const Heads heads = read_heads(config, "num_attention_heads", "hidden_size");
    const std::int64_t hidden = builder.width(x);
    const bool bias = config.flag("attention_bias");
    const ValueId fused = builder.linear(x, name + ".query_key_value", 3 * hidden, bias);
    const std::vector<ValueId> parts = builder.split(builder.split_heads(fused, heads.query, name), 3, name);
    const ValueId mixed =
        builder.attention(builder.rotary(parts[0], tables, name), builder.rotary(parts[1], tables, name), parts[2],
                          {true, heads.scale(), config.real("attention_dropout")}, name);
    return builder.linear(mixed, name + ".dense", hidden, bias);
}

ValueId gpt_neox_logits(Builder& builder, const Config& config) {
    const std::int64_t vocabulary = config.integer("vocab_size"), hidden = config.integer("hidden_size");
    const double eps = config.real("layer_norm_eps"), dropout = config.real("hidden_dropout");
    const Heads heads = read_heads(config, "num_attention_heads", "hidden_size");
    builder.set_deviation(config.real("initializer_range"));

    const RotaryTables tables = rotary_tables(builder, config, read_rope(config, heads.size), "gpt_neox.rotary_emb");
    ValueId x = builder.embedding(builder.input_ids(), "gpt_neox.embed_in", vocabulary, hidden);
    x = builder.dropout(x, dropout, "gpt_neox.emb_dropout");
    for (std::int64_t i = 0; i < config.integer("num_hidden_layers"); ++i) {
        const std::string name = fmt::format("gpt_neox.layers.{}", i);
        auto feed_forward = [&](ValueId y) {
            y = builder.layer_norm(y, name + ".post_attention_layernorm", eps);
            y = builder.linear(y, name + ".mlp.dense_h_to_4h", config.integer("intermediate_size"));
            y = builder.activation(y, config.text("hidden_act"), name + ".mlp");
            y = builder.linear(y, name + ".mlp.dense_4h_to_h", hidden);
            return builder.dropout(y, dropout, name + ".post_mlp_dropout");
        };
        ValueId mixed = builder.layer_norm(x, name + ".input_layernorm", eps);
        mixed = gpt_neox_attention(builder, config, tables, mixed, name + ".attention");
        mixed = builder.dropout(mixed, dropout, name + ".post_attention_dropout");
        if (config.flag("use_parallel_residual")) {
            x = builder.add(builder.add(feed_forward(x), mixed, name), x, name);
        } else {
            x = builder.add(mixed, x, name);
            x = builder.add(feed_forward(x), x, name);
        }
    }
    x = builder.layer_norm(x, "gpt_neox.final_layer_norm", eps);
    return language_head(builder, x, config.flag("tie_word_embeddings"), "gpt_neox.embed_in", "embed_out", vocabulary);
}

} // namespace

Family gpt_neox() {
    return {
        .architecture = "GPTNeoXForCausalLM",
        .model_type = "gpt_neox",
        .base_prefix = "gpt_neox.",
        .keys = gpt_neox_keys,
        .facts = rotary_position_facts,
        .logits = gpt_neox_logits,
        // Transformers 5 calls it lm_head in memory, and still writes embed_out.
        .other_names = {{"embed_out.weight", "lm_head.weight"}},
        .tied_copies = {"embed_out.weight", "lm_head.weight"},
    };
}

} // namespace tutti::models::huggingface

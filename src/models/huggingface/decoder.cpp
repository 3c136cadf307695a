#include "models/huggingface/decoder.h"

#include "base/error.h"

#include <cmath>

namespace tutti::models::huggingface {
namespace {

// What one build needs, read once.
struct Sizes {
    std::int64_t hidden, intermediate;
    Heads heads;
    double eps, dropout;
};

ValueId attention(Builder& builder, const Decoder& decoder, const Sizes& sizes, const RotaryTables& tables, ValueId x,
                  std::int64_t window, const std::string& name) {
    const Heads& heads = sizes.heads;
    auto project = [&](const char* part, std::int64_t count, const char* norm = nullptr) {
        ValueId all = builder.linear(x, name + part, count * heads.size, decoder.query_bias);
        if (norm && decoder.query_norms == QueryNorms::all_heads) all = builder.rms_norm(all, name + norm, sizes.eps);
        return builder.split_heads(all, count, name);
    };
    ValueId q = project(".q_proj", heads.query, ".q_norm"), k = project(".k_proj", heads.key, ".k_norm");
    const ValueId v = project(".v_proj", heads.key);
    if (decoder.query_norms == QueryNorms::per_head) {
        q = builder.rms_norm(q, name + ".q_norm", sizes.eps);
        k = builder.rms_norm(k, name + ".k_norm", sizes.eps);
    }
    q = builder.rotary(q, tables, name);
    k = builder.rotary(k, tables, name);
    const ValueId mixed = builder.attention(q, k, v, {true, heads.scale(), sizes.dropout, window}, name);
    return builder.linear(mixed, name + ".o_proj", sizes.hidden, decoder.output_bias);
}

ValueId feed_forward(Builder& builder, const Decoder& decoder, const Sizes& sizes, ValueId x, const std::string& name) {
    const bool bias = decoder.feed_forward_bias;
    ValueId gate = builder.linear(x, name + ".gate_proj", sizes.intermediate, bias);
    gate = builder.activation(gate, decoder.activation, name);
    const ValueId up = builder.linear(x, name + ".up_proj", sizes.intermediate, bias);
    return builder.linear(builder.multiply(gate, up, name), name + ".down_proj", sizes.hidden, bias);
}

} // namespace

Keys decoder_keys(const DecoderDefaults& defaults) {
    return Keys{{"vocab_size", Kind::size, defaults.vocabulary},
                {"hidden_size", Kind::size, defaults.hidden},
                {"intermediate_size", Kind::size, defaults.intermediate},
                {"num_hidden_layers", Kind::layers, defaults.layers},
                {"num_attention_heads", Kind::size, defaults.heads},
                {"num_key_value_heads", Kind::optional_size, defaults.key_heads},
                {"head_dim", Kind::optional_size, defaults.head_size},
                {"hidden_act", Kind::activation, "silu"},
                {"max_position_embeddings", Kind::size, defaults.positions},
                {"initializer_range", Kind::real, 0.02},
                {"rms_norm_eps", Kind::real, 1e-6},
                {"attention_dropout", Kind::probability, 0.0},
                {"tie_word_embeddings", Kind::flag, defaults.tied},
                {"pad_token_id", Kind::token, defaults.padding}} + // its embedding gets no gradient
           rope_keys();
}

Keys qwen_keys(const nlohmann::json& head_size) {
    return decoder_keys({.vocabulary = 151936,
                         .hidden = 4096,
                         .intermediate = 22016,
                         .layers = 32,
                         .heads = 32,
                         .key_heads = 32,
                         .head_size = head_size,
                         .positions = 32768}) +
           Keys{{"sliding_window", Kind::optional_size, 4096},
                {"use_sliding_window", Kind::flag, false},
                {"max_window_layers", Kind::count, 28},
                {"layer_types", Kind::free}};
}

ValueId decoder_logits(Builder& builder, const Config& config, const Decoder& decoder) {
    const std::int64_t vocabulary = config.integer("vocab_size");
    const Sizes sizes = {config.integer("hidden_size"), config.integer("intermediate_size"), read_heads(config),
                         config.real("rms_norm_eps"), config.real("attention_dropout")};
    const Rope rope = read_rope(config, sizes.heads.size);
    if (2 * static_cast<std::int64_t>(rope.frequencies.size()) != sizes.heads.size)
        fail("{}: \"partial_rotary_factor\" is below 1, but this family rotates whole heads", config.where());
    builder.set_deviation(config.real("initializer_range"));

    const RotaryTables tables = rotary_tables(builder, config, rope, "model.rotary_emb");
    ValueId x =
        builder.embedding(builder.input_ids(), "model.embed_tokens", vocabulary, sizes.hidden, padding_row(config));
    if (decoder.scaled_embedding)
        x = builder.times(x, std::sqrt(static_cast<double>(sizes.hidden)), "model.embed_tokens");
    for (std::int64_t i = 0; i < config.integer("num_hidden_layers"); ++i) {
        const std::string name = fmt::format("model.layers.{}", i);
        auto norm = [&](ValueId y, const char* part) {
            return builder.rms_norm(y, name + part, sizes.eps, decoder.unit_offset);
        };
        const std::int64_t window = decoder.windows.empty() ? 0 : decoder.windows[static_cast<std::size_t>(i)];
        auto attend = [&](ValueId y) {
            return attention(builder, decoder, sizes, tables, y, window, name + ".self_attn");
        };
        auto feed = [&](ValueId y) { return feed_forward(builder, decoder, sizes, y, name + ".mlp"); };
        if (decoder.norms_after) {
            x = builder.add(x, norm(attend(x), ".post_attention_layernorm"), name);
            x = builder.add(x, norm(feed(x), ".post_feedforward_layernorm"), name);
        } else {
            x = builder.add(x, attend(norm(x, ".input_layernorm")), name);
            x = builder.add(x, feed(norm(x, ".post_attention_layernorm")), name);
        }
    }
    x = builder.rms_norm(x, "model.norm", sizes.eps, decoder.unit_offset);
    return language_head(builder, x, config.flag("tie_word_embeddings"), "model.embed_tokens", "lm_head", vocabulary);
}

std::vector<std::int64_t> window_of_all_layers(const Config& config) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(config.integer("num_hidden_layers")),
                                     config.optional_integer("sliding_window").value_or(0));
}

std::vector<std::int64_t> windows_of_some_layers(const Config& config) {
    const std::int64_t window =
        config.flag("use_sliding_window") ? config.optional_integer("sliding_window").value_or(0) : 0;
    const std::int64_t layers = config.integer("num_hidden_layers");
    std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
    const nlohmann::json& types = config.value("layer_types");
    if (types.is_null()) {
        for (std::int64_t i = config.integer("max_window_layers"); i < layers; ++i)
            windows[static_cast<std::size_t>(i)] = window;
        return windows;
    }
    if (!types.is_array() || types.size() != windows.size())
        config.reject("layer_types", fmt::format("it must be a list of {} names, one per layer", layers));
    for (std::size_t i = 0; i < windows.size(); ++i) {
        if (types[i] == "full_attention") continue;
        if (types[i] != "sliding_attention")
            config.reject("layer_types", "only \"full_attention\" and \"sliding_attention\" are supported");
        if (window == 0)
            config.reject("layer_types", "\"sliding_attention\" needs use_sliding_window and sliding_window");
        windows[i] = window;
    }
    return windows;
}

} // namespace tutti::models::huggingface

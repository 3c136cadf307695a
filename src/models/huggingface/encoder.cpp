#include "models/huggingface/encoder.h"

namespace tutti::models::huggingface {
namespace {

ValueId layer(Builder& builder, const Config& config, ValueId x, const std::string& name) {
    const std::int64_t hidden = builder.width(x);
    const Heads heads = read_heads(config, "num_attention_heads", "hidden_size");
    const double eps = config.real("layer_norm_eps"), dropout = config.real("hidden_dropout_prob");
    const std::string self = name + ".attention.self", output = name + ".attention.output";
    auto project = [&](const char* part) {
        return builder.split_heads(builder.linear(x, self + part, hidden), heads.query, self);
    };
    auto close = [&](ValueId y, ValueId residual, const std::string& place) { // dense, dropout, residual, norm
        y = builder.dropout(builder.linear(y, place + ".dense", hidden), dropout, place + ".dropout");
        return builder.layer_norm(builder.add(y, residual, place), place + ".LayerNorm", eps);
    };
    const ValueId q = project(".query"), k = project(".key"), v = project(".value");
    const AttentionOptions options = {false, heads.scale(), config.real("attention_probs_dropout_prob")};
    x = close(builder.attention(q, k, v, options, self), x, output);
    ValueId y = builder.linear(x, name + ".intermediate.dense", config.integer("intermediate_size"));
    y = builder.activation(y, config.text("hidden_act"), name + ".intermediate");
    return close(y, x, name + ".output");
}

} // namespace

Keys encoder_keys(std::int64_t vocabulary, std::int64_t padding) {
    return {
        {"vocab_size", Kind::size, vocabulary},
        {"hidden_size", Kind::size, 768},
        {"num_hidden_layers", Kind::layers, 12},
        {"num_attention_heads", Kind::size, 12},
        {"intermediate_size", Kind::size, 3072},
        {"hidden_act", Kind::activation, "gelu"},
        {"hidden_dropout_prob", Kind::probability, 0.1},
        {"attention_probs_dropout_prob", Kind::probability, 0.1},
        {"max_position_embeddings", Kind::size, 512},
        {"type_vocab_size", Kind::size, 2},
        {"initializer_range", Kind::real, 0.02},
        {"layer_norm_eps", Kind::real, 1e-12},
        {"pad_token_id", Kind::token, padding}, // its embedding gets no gradient
        {"mask_token_id", Kind::token},         // Tutti's own key: what stands for a hidden token
        {"position_embedding_type", Kind::only, "absolute"},
        {"is_decoder", Kind::only, false},
        {"tie_word_embeddings", Kind::flag, true},
    };
}

ValueId encoder(Builder& builder, const Config& config, const std::string& base, ValueId places,
                std::int64_t padding_place) {
    const std::int64_t hidden = config.integer("hidden_size");
    const std::string name = base + ".embeddings", types = name + ".token_type_embeddings";
    const ValueId words = builder.embedding(builder.input_ids(), name + ".word_embeddings",
                                            config.integer("vocab_size"), hidden, padding_row(config));
    // Every token is of the first type: there is one segment.
    const ValueId kinds = builder.embedding(builder.fill_ids(0, {builder.shape().sequence}, types), types,
                                            config.integer("type_vocab_size"), hidden);
    const ValueId places_embedded = builder.embedding(places, name + ".position_embeddings",
                                                      config.integer("max_position_embeddings"), hidden, padding_place);
    ValueId x = builder.add(builder.add(words, kinds, name), places_embedded, name);
    x = builder.layer_norm(x, name + ".LayerNorm", config.real("layer_norm_eps"));
    x = builder.dropout(x, config.real("hidden_dropout_prob"), name + ".dropout");
    for (std::int64_t i = 0; i < config.integer("num_hidden_layers"); ++i)
        x = layer(builder, config, x, fmt::format("{}.encoder.layer.{}", base, i));
    return x;
}

ValueId masked_head(Builder& builder, const Config& config, ValueId x, const std::string& embedding,
                    const std::string& head) {
    const std::int64_t vocabulary = config.integer("vocab_size");
    const ValueId bias = builder.parameter(head + ".bias", {vocabulary}, Initialisation::constant(0));
    if (!config.flag("tie_word_embeddings")) return builder.linear(x, head + ".decoder", vocabulary);
    const ValueId weight = builder.parameter(embedding + ".weight", {vocabulary, builder.width(x)}, {});
    return builder.linear_with(x, weight, bias, head + ".decoder");
}

} // namespace tutti::models::huggingface

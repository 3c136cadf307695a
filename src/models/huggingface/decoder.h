// The decoder that Llama, Mistral, Qwen2, Qwen3, Gemma and OLMo 2 share: rotary positions, an RMS norm for each half,
// grouped key heads and a gated feed-forward. What they differ in stands here as values.
#pragma once

#include "models/huggingface/family.h"
#include "models/huggingface/rope.h"

namespace tutti::models::huggingface {

// How queries and keys are normalised before they are rotated.
enum class QueryNorms {
    none,
    per_head,  // each head by itself, with one scale for all (Qwen3)
    all_heads, // the whole projection (OLMo 2)
};

struct Decoder {
    bool query_bias = false; // of the projections to queries, keys and values
    bool output_bias = false;
    bool feed_forward_bias = false;
    QueryNorms query_norms = QueryNorms::none;
    bool norms_after = false;      // of what each half gives, rather than of what it reads (OLMo 2)
    bool unit_offset = false;      // norms scale by 1 + weight (Gemma)
    bool scaled_embedding = false; // token embeddings are multiplied by sqrt(hidden) (Gemma)
    std::string activation = "silu";
    std::vector<std::int64_t> windows = {}; // per layer, the keys that a query sees; 0, or an empty list: all
};

// Keys every one of them has, with the family's defaults.
struct DecoderDefaults {
    std::int64_t vocabulary, hidden, intermediate, layers, heads;
    nlohmann::json key_heads, head_size; // a number, or null: as many as heads, hidden / heads
    std::int64_t positions;
    bool tied = false;
    nlohmann::json padding = {};
};
Keys decoder_keys(const DecoderDefaults& defaults);

// Qwen2's and Qwen3's, which may have a window in some layers.
Keys qwen_keys(const nlohmann::json& head_size);

ValueId decoder_logits(Builder& builder, const Config& config, const Decoder& decoder);

// The windows of layers: Mistral's is that of all; Qwen's are in the layers that "layer_types" names or, without it, in
// those from "max_window_layers" on.
std::vector<std::int64_t> window_of_all_layers(const Config& config);
std::vector<std::int64_t> windows_of_some_layers(const Config& config);

} // namespace tutti::models::huggingface

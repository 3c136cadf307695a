// A family of checkpoints: its table of config keys, its block description, and the names its tensors have had. All
// families are listed in families.cpp; each is defined in a file of its own.
#pragma once

#include "models/builder.h"
#include "models/huggingface/config.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::models::huggingface {

struct Family {
    std::string architecture; // "GPT2LMHeadModel"
    std::string model_type;   // "gpt2"
    std::string base_prefix;  // of all tensors but the head's; checkpoints of the bare model lack it
    std::string positions_key = "max_position_embeddings"; // what "max_sequence" comes from
    Keys keys;
    ModelFacts (*facts)(const Config&) = nullptr;
    ValueId (*logits)(Builder&, const Config&) = nullptr; // the whole forward, from token ids to logits
    // Tensors that have gone by other names: what is stored, and how else a checkpoint may call it.
    std::vector<std::pair<std::string, std::string>> other_names = {};
    // Copies that checkpoints hold of tied tensors.
    std::vector<std::string> tied_copies = {"lm_head.weight"};
};

Family gpt2();
Family llama();
Family mistral();
Family qwen2();
Family qwen3();
Family gemma();
Family olmo2();
Family gpt_neox();
Family phi();
Family opt();
Family bert();
Family roberta();

std::span<const Family> all_families();
// By "architectures", or "model_type" where there is none. Error where neither is known.
const Family& find_family(const nlohmann::json& config, const std::string& where);

// Query and key heads, and the size of each.
struct Heads {
    std::int64_t query = 0;
    std::int64_t key = 0;
    std::int64_t size = 0;
    double scale() const; // 1 / sqrt(size)
};
// With grouped key heads: from num_attention_heads, num_key_value_heads, head_dim and hidden_size. Without: from two
// keys. Error where the counts do not divide.
Heads read_heads(const Config& config);
Heads read_heads(const Config& config, std::string_view heads_key, std::string_view hidden_key);

// The padding row of an embedding, counted from the end where negative as in PyTorch; -1 for null.
std::int64_t padding_row(const Config& config, std::string_view token_key = "pad_token_id",
                         std::string_view vocabulary_key = "vocab_size");

// vocab_size and max_position_embeddings, as models with a table of positions read them, and those without.
ModelFacts learned_position_facts(const Config& config);
ModelFacts rotary_position_facts(const Config& config);

// The output head of decoders: the embedding again where tied, else a matrix of its own.
ValueId language_head(Builder& builder, ValueId x, bool tied, const std::string& embedding, const std::string& head,
                      std::int64_t vocabulary, bool bias = false);

} // namespace tutti::models::huggingface

#include "base/error.h"
#include "formats/json.h"
#include "models/huggingface/family.h"

#include <algorithm>
#include <cmath>

namespace tutti::models::huggingface {

std::span<const Family> all_families() {
    static const std::vector<Family> families = {gpt2(),  llama(), mistral(),  qwen2(), qwen3(), gemma(),
                                                 olmo2(), phi(),   gpt_neox(), opt(),   bert(),  roberta()};
    return families;
}

namespace {

std::string supported() {
    std::vector<std::string> names;
    for (const Family& family : all_families()) names.push_back(family.architecture);
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string text_of(const nlohmann::json& config, const char* key, const std::string& where) {
    const auto at = config.find(key);
    if (at == config.end() || at->is_null()) return {};
    if (!at->is_string()) fail("{}: \"{}\" must be a string", where, key);
    return at->get<std::string>();
}

std::string architecture_of(const nlohmann::json& config, const std::string& where) {
    const auto at = config.find("architectures");
    if (at == config.end() || at->is_null() || (at->is_array() && at->empty())) return {};
    if (!at->is_array() || !at->front().is_string()) fail("{}: \"architectures\" must be a list of names", where);
    return at->front().get<std::string>();
}

} // namespace

const Family& find_family(const nlohmann::json& config, const std::string& where) {
    if (!config.is_object()) fail("{} is not a JSON object", where);
    const std::string architecture = architecture_of(config, where), type = text_of(config, "model_type", where);
    if (architecture.empty() && type.empty())
        fail("{} has neither \"architectures\" nor \"model_type\"; supported are {}", where, supported());
    for (const Family& family : all_families()) {
        if (architecture.empty() ? family.model_type != type : family.architecture != architecture) continue;
        if (!type.empty() && family.model_type != type)
            fail("{}: \"model_type\" is {}, but {} is of type \"{}\"", where, formats::in_quotes(type), architecture,
                 family.model_type);
        return family;
    }
    if (architecture.empty())
        fail("{}: \"model_type\" {} is not supported; supported are {}", where, formats::in_quotes(type), supported());
    fail("{}: \"architectures\" names {}, which is not supported; supported are {}", where,
         formats::in_quotes(architecture), supported());
}

double Heads::scale() const { return 1 / std::sqrt(static_cast<double>(size)); }

Heads read_heads(const Config& config, std::string_view heads_key, std::string_view hidden_key) {
    const std::int64_t heads = config.integer(heads_key), hidden = config.integer(hidden_key);
    if (hidden % heads != 0)
        config.reject(heads_key, fmt::format("it must divide \"{}\", which is {}", hidden_key, hidden));
    return {heads, heads, hidden / heads};
}

Heads read_heads(const Config& config) {
    Heads heads;
    if (const auto size = config.optional_integer("head_dim"))
        heads = {config.integer("num_attention_heads"), 0, *size};
    else
        heads = read_heads(config, "num_attention_heads", "hidden_size");
    heads.key = config.optional_integer("num_key_value_heads").value_or(heads.query);
    if (heads.query % heads.key != 0)
        config.reject("num_key_value_heads",
                      fmt::format("it must divide \"num_attention_heads\", which is {}", heads.query));
    return heads;
}

std::int64_t padding_row(const Config& config, std::string_view token_key, std::string_view vocabulary_key) {
    const std::optional<std::int64_t> token = config.optional_integer(token_key);
    if (!token) return -1;
    const std::int64_t vocabulary = config.integer(vocabulary_key);
    if (*token >= vocabulary || *token < -vocabulary)
        config.reject(token_key, fmt::format("\"{}\" is {}", vocabulary_key, vocabulary));
    return *token < 0 ? *token + vocabulary : *token;
}

ModelFacts learned_position_facts(const Config& config) {
    const std::int64_t positions = config.integer("max_position_embeddings");
    return {{}, true, config.integer("vocab_size"), positions, positions};
}

ModelFacts rotary_position_facts(const Config& config) {
    return {{}, true, config.integer("vocab_size"), config.integer("max_position_embeddings"), 0};
}

ValueId language_head(Builder& builder, ValueId x, bool tied, const std::string& embedding, const std::string& head,
                      std::int64_t vocabulary, bool bias) {
    if (!tied) return builder.linear(x, head, vocabulary, bias);
    const ValueId weight = builder.parameter(embedding + ".weight", {vocabulary, builder.width(x)}, {});
    const ValueId shift =
        bias ? builder.parameter(head + ".bias", {vocabulary}, Initialisation::constant(0)) : ValueId::none;
    return builder.linear_with(x, weight, shift, head);
}

} // namespace tutti::models::huggingface

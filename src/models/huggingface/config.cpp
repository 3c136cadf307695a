#include "models/huggingface/config.h"

#include "base/dtype.h"
#include "base/error.h"
#include "formats/json.h"
#include "models/builder.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tutti::models::huggingface {
namespace {

using nlohmann::json;

constexpr std::int64_t largest_size = 1'000'000'000, most_layers = 10'000;

// Bookkeeping that Transformers 4 and 5 write beside a model's own keys, and the parameters of text generation that
// version 4 kept here. None changes what is computed in training.
const std::set<std::string, std::less<>> bookkeeping = {
    "architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "auto_map",
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "decoder_start_token_id", "tokenizer_class", "task_specific_params", "id2label", "label2id",
    "num_labels", "problem_type", "finetuning_task", "classifier_dropout", "return_dict", "output_hidden_states",
    "output_attentions", "output_past", "torchscript", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward",
    "gradient_checkpointing", "_attn_implementation", "attn_implementation", "_attn_implementation_autoset",
    "_attn_implementation_internal", "_flash_attn_2_enabled", "unsloth_version", "unsloth_fixed",
    // generation
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "prefix", "max_new_tokens"};

// The type that the weights were saved with. They are read as their files say; but a name that is none is a mistake.
const Keys element_types = {{"dtype", Kind::element_type, {}}, {"torch_dtype", Kind::element_type, {}}};

// What any config may hold and no family here computes.
const Keys unsupported = {
    {"is_encoder_decoder", Kind::only, false},
    {"add_cross_attention", Kind::only, false},
    {"cross_attention_hidden_size", Kind::only, {}},
    {"pruned_heads", Kind::only, json::object()},
    {"quantization_config", Kind::only, {}},
    {"per_layer_config", Kind::only, json::object()},
    {"attn_logit_softcapping", Kind::only, {}},
    {"final_logit_softcapping", Kind::only, {}},
    {"use_bidirectional_attention", Kind::only, false},
};

std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
}

bool is_element_type(const json& value) {
    if (value.is_null()) return true;
    if (!value.is_string()) return false;
    std::string_view name = value.get_ref<const std::string&>();
    if (name.starts_with("torch.")) name.remove_prefix(6);
    if (name == "auto") return true;
    const auto dtype = parse_dtype(name);
    return dtype && is_floating(*dtype);
}

// Empty where the value fits, else what would be right.
std::string expectation(const Key& key, const json& value) {
    auto integer_in = [&](std::int64_t least, std::int64_t most) -> std::string {
        const bool fits = value.is_number_unsigned()
                              ? std::cmp_less_equal(value.get<std::uint64_t>(), most) && value >= least
                              : value.is_number_integer() && value >= least && value <= most;
        if (fits) return {};
        return fmt::format("it must be an integer from {} to {}", least, most);
    };
    switch (key.kind) {
    case Kind::size: return integer_in(1, largest_size);
    case Kind::optional_size: return value.is_null() ? "" : integer_in(1, largest_size);
    case Kind::layers: return integer_in(1, most_layers);
    case Kind::count: return integer_in(0, largest_size);
    case Kind::token: return value.is_null() ? "" : integer_in(-largest_size, largest_size);
    case Kind::real:
        if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0) return {};
        return "it must be a number that is not negative";
    case Kind::probability:
        if (value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1) return {};
        return "it must be a number from 0 up to, but not including, 1";
    case Kind::flag: return value.is_boolean() ? "" : "it must be true or false";
    case Kind::activation:
        if (value.is_string() && std::ranges::count(activation_names(), value.get_ref<const std::string&>())) return {};
        return fmt::format("it must be one of {}", fmt::join(activation_names(), ", "));
    case Kind::element_type: return is_element_type(value) ? "" : "it must be float32, bfloat16, float16 or float64";
    case Kind::only:
        if (value.is_null() || value == key.otherwise) return {};
        return fmt::format("only {} is supported", shown(key.otherwise));
    case Kind::free:
    case Kind::ignored: return {};
    }
    return {};
}

} // namespace

Keys operator+(Keys a, const Keys& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Config::Config(const json& values, std::string where, const Keys& keys) : where_(std::move(where)) {
    if (!values.is_object()) fail("{} is not a JSON object", where_);
    for (const Key& key : keys) read(key, values);
    for (const Key& key : element_types + unsupported)
        if (!entries_.contains(key.name)) read(key, values);

    std::set<std::string> known;
    for (const Key& key : keys) known.insert({key.name, key.also});
    for (const auto& [key, value] : values.items())
        if (!known.contains(key) && !entries_.contains(key) && !bookkeeping.contains(key))
            warnings_.push_back(
                fmt::format("{}: the key {} is not known and has no effect", where_, formats::in_quotes(key)));
}

void Config::read(const Key& key, const json& values) {
    auto at = values.find(key.name);
    if (!key.also.empty() && values.contains(key.also)) {
        const json& other = values[key.also];
        if (at != values.end() && *at != other)
            fail("{}: \"{}\" is {} and \"{}\" is {}, but they are two names of one value", where_, key.name, shown(*at),
                 key.also, shown(other));
        at = values.find(key.also);
    }
    const bool there = at != values.end();
    const json& value = there ? *at : key.otherwise;
    if (there)
        if (const std::string expected = expectation(key, value); !expected.empty()) reject(at.key(), value, expected);
    entries_[key.name] = {value.is_null() && key.kind == Kind::only ? key.otherwise : value, there && !value.is_null(),
                          there ? at.key() : key.name};
    if (!value.is_object() || key.members.empty()) return;
    for (const auto& [member, ignored] : value.items())
        if (!std::ranges::count(key.members, member))
            warnings_.push_back(fmt::format("{}: the key {} in \"{}\" is not known and has no effect", where_,
                                            formats::in_quotes(member), key.name));
}

const Config::Entry& Config::entry(std::string_view key) const {
    const auto at = entries_.find(key);
    TUTTI_CHECK(at != entries_.end(), "the key {} is in no table", key);
    return at->second;
}

std::int64_t Config::integer(std::string_view key) const { return entry(key).value.get<std::int64_t>(); }

std::optional<std::int64_t> Config::optional_integer(std::string_view key) const {
    const json& value = entry(key).value;
    if (value.is_null()) return std::nullopt;
    return value.get<std::int64_t>();
}

double Config::real(std::string_view key) const { return entry(key).value.get<double>(); }
bool Config::flag(std::string_view key) const { return entry(key).value.get<bool>(); }
const std::string& Config::text(std::string_view key) const { return entry(key).value.get_ref<const std::string&>(); }
const json& Config::value(std::string_view key) const { return entry(key).value; }
bool Config::given(std::string_view key) const { return entry(key).given; }

void Config::reject(std::string_view key, std::string_view expectation) const {
    reject(entry(key).spelling, entry(key).value, expectation);
}

void Config::reject(std::string_view key, const json& value, std::string_view expectation) const {
    fail("{}: \"{}\" is {}, but {}", where_, key, shown(value), expectation);
}

} // namespace tutti::models::huggingface

#include "models/checkpoint.h"

#include "base/error.h"
#include "formats/json.h"
#include "models/huggingface/family.h"

#include <algorithm>
#include <optional>
#include <set>

namespace tutti::models {
namespace {

using huggingface::Family;

std::optional<std::string> with_ending(const std::string& name, std::string_view from, std::string_view to) {
    if (!name.ends_with(from)) return std::nullopt;
    return name.substr(0, name.size() - from.size()) + std::string(to);
}

// All spellings, the usual one first.
std::vector<std::string> spellings(const huggingface::Family& family, const std::string& stored) {
    std::vector<std::string> names = {stored};
    if (stored.starts_with(family.base_prefix)) names.push_back(stored.substr(family.base_prefix.size()));
    for (std::size_t i = 0, usual = names.size(); i < usual; ++i) { // as TensorFlow called them
        if (auto older = with_ending(names[i], "LayerNorm.weight", "LayerNorm.gamma")) names.push_back(*older);
        if (auto older = with_ending(names[i], "LayerNorm.bias", "LayerNorm.beta")) names.push_back(*older);
    }
    for (const auto& [name, other] : family.other_names)
        if (name == stored) names.push_back(other);
    return names;
}

// Tables that versions of Transformers saved although they follow from the config.
bool is_buffer(const std::string& name) {
    static constexpr std::string_view endings[] = {"rotary_emb.inv_freq",      "attn.bias",
                                                   "attn.masked_bias",         "attention.bias",
                                                   "attention.masked_bias",    "embeddings.position_ids",
                                                   "embeddings.token_type_ids"};
    return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::string dtype_in_config(DType dtype) {
    if (dtype == DType::bfloat16) return "bfloat16";
    if (dtype == DType::float16) return "float16";
    return std::string(name_of(dtype));
}

bool belongs_to_tokenizer(const std::string& name) {
    auto within = [&](std::string_view begin, std::string_view end) {
        return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
    };
    return within("tokenizer", ".json") || within("vocab.", "") || within("chat_template", "") ||
           within("", ".model") || within("", ".tiktoken") || name == "merges.txt" ||
           name == "special_tokens_map.json" || name == "added_tokens.json" || name == "generation_config.json";
}

} // namespace

std::string tokenizer_in(const fs::path& folder) {
    for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
                             "sentencepiece.bpe.model", "tokenizer.tiktoken"})
        if (!folder.empty() && is_file(folder / name)) return (folder / name).string();
    return "";
}

std::vector<std::string> other_names(const ModelSource& source, const std::string& stored) {
    std::vector<std::string> names;
    for (const auto& [name, other] : source.family().other_names)
        if (name == stored) names.push_back(other);
    return names;
}

std::string checkpoint_name(const ModelSource& source, const formats::TensorStore& weights, const std::string& stored) {
    for (const std::string& name : spellings(source.family(), stored))
        if (weights.find(name)) return name;
    fail("the weights in {} hold no tensor {}, which {} needs", weights.folder().string(), formats::in_quotes(stored),
         source.facts().architecture);
}

std::vector<std::string> check_weights(const ModelSource& source, const Model& model,
                                       const formats::TensorStore& weights) {
    std::set<std::string> used;
    for (const StoredTensor& tensor : model.graph.stored()) {
        const std::string name = checkpoint_name(source, weights, tensor.name);
        const formats::TensorEntry& entry = weights.entry(name);
        if (entry.type.shape != tensor.type.shape)
            fail("the tensor {} in {} has shape {}, but {} makes it {}", formats::in_quotes(name),
                 weights.folder().string(), to_string(entry.type.shape), source.where(), to_string(tensor.type.shape));
        if (!is_floating(entry.type.dtype))
            fail("the tensor {} in {} holds {}, but weights are floating", formats::in_quotes(name),
                 weights.folder().string(), name_of(entry.type.dtype));
        used.insert(name);
    }
    std::vector<std::string> unknown;
    const std::vector<std::string>& copies = source.family().tied_copies;
    for (const std::string& name : weights.names())
        if (!used.contains(name) && !is_buffer(name) && !std::ranges::count(copies, name)) unknown.push_back(name);
    if (unknown.empty()) return {};
    const std::size_t shown = std::min<std::size_t>(unknown.size(), 3);
    std::string list;
    for (std::size_t i = 0; i < shown; ++i) list += (i ? ", " : "") + formats::in_quotes(unknown[i]);
    if (shown < unknown.size()) list += fmt::format(" and {} more", unknown.size() - shown);
    return {fmt::format("the weights in {} hold tensors that {} does not have, and they are left out: {}",
                        weights.folder().string(), source.facts().architecture, list)};
}

void copy_model_files(const ModelSource& source, const fs::path& to, DType saved_dtype) {
    make_folders(to);
    nlohmann::json config = source.config();
    config[config.contains("torch_dtype") && !config.contains("dtype") ? "torch_dtype" : "dtype"] =
        dtype_in_config(saved_dtype);
    write_text_atomically(to / "config.json",
                          config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (source.folder().empty()) return;
    std::error_code same;
    if (fs::equivalent(source.folder(), to, same)) return;
    for (const fs::path& file : entries_of(source.folder()))
        if (belongs_to_tokenizer(file.filename().string()) && is_file(file))
            write_text_atomically(to / file.filename(), read_text(file));
}

} // namespace tutti::models

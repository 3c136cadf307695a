#include "base/error.h"
#include "formats/text_file.h"
#include "text/json_parts.h"
#include "text/pipeline.h"

#include <utility>

namespace tutti::text {
namespace {

using formats::JsonObject;

constexpr std::uint64_t largest_file = 256ull << 20, most_memory = 4ull << 30;

// A part that may be absent or null.
std::optional<JsonObject> find_part(const JsonObject& object, std::string_view key) {
    if (object.find(key) == nullptr) return std::nullopt;
    return part_of(object, key);
}

Stages read_stages(const JsonObject& object) {
    if (const auto version = object.find_string("version"); version && *version != "1.0")
        fail("{} is of version {}; version 1.0 is read", object.where(), formats::in_quotes(*version));
    Stages stages;
    ReadModel model = read_model(part_of(object, "model"));
    if (const auto part = find_part(object, "normalizer")) stages.normalizer = read_normalizer(*part);
    bool bytes = static_cast<bool>(model.take_bytes);
    if (const auto part = find_part(object, "pre_tokenizer"))
        stages.pre_tokenizers = read_pre_tokenizers(*part, bytes);
    else
        bytes = false;
    if (bytes) model.take_bytes();
    stages.model = std::move(model.model);
    if (const auto part = find_part(object, "post_processor"))
        stages.post_processor = read_post_processor(*part, stages.end_of_processor_ids);
    if (const auto part = find_part(object, "decoder")) stages.decoder = read_decoder(*part);
    if (const nlohmann::json* tokens = object.find("added_tokens"))
        stages.added.add(read_added_tokens(*tokens, object.where() + ": added_tokens"), *stages.model,
                         stages.normalizer.get());
    return stages;
}

} // namespace

std::unique_ptr<const Tokenizer> read_tokenizer_json(std::string_view json, const std::string& where) {
    const nlohmann::json value = formats::parse_json(json, where, most_memory);
    return std::make_unique<Pipeline>(read_stages(JsonObject(value, where)));
}

std::unique_ptr<const Tokenizer> open_tokenizer(const fs::path& path) {
    if (is_folder(path)) {
        if (is_there(path / "tokenizer.json")) return open_tokenizer(path / "tokenizer.json");
        if (is_there(path / "tokenizer.model")) return open_sentence_piece(path / "tokenizer.model");
        fail("the folder {} has neither a tokenizer.json nor a tokenizer.model", path.string());
    }
    if (!is_there(path)) fail("there is no tokenizer {}: name a folder or a tokenizer.json", path.string());
    if (path.extension() == ".model") return open_sentence_piece(path);
    return read_tokenizer_json(formats::read_text_file(path, "a tokenizer", largest_file), path.string());
}

} // namespace tutti::text

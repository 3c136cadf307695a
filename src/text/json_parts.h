// The parts of a tokenizer.json, each read from the object that describes it.
#pragma once

#include "formats/json.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

#include <memory>
#include <vector>

namespace tutti::text {

constexpr std::size_t most_parts = 256;          // of one sequence, those within it included
constexpr std::size_t longest_content = 1 << 16; // bytes of a text that a rule inserts or looks for

// What several parts have in common: errors name the file and the key.
formats::JsonObject part_of(const formats::JsonObject& object, std::string_view key);
char32_t read_character(const formats::JsonObject& object, std::string_view key);
std::string read_short_text(const formats::JsonObject& object, std::string_view key);
std::uint64_t read_count(const formats::JsonObject& object, std::string_view key);
Id read_id(const nlohmann::json& value, const std::string& where);
PrependScheme read_prepend_scheme(const formats::JsonObject& object);
// {"String": text} or {"Regex": pattern} under "pattern".
struct ReadPattern {
    Pattern pattern;
    bool expression;
};
ReadPattern read_pattern(const formats::JsonObject& object);
// The objects of a list, named for error sentences; Error for more than most_parts.
std::vector<formats::JsonObject> read_list(const formats::JsonObject& object, std::string_view key);

NormalizerPointer read_normalizer(const formats::JsonObject& object);
// `bytes`: the model takes bytes, where a byte-level pre-tokenizer is the last one.
std::vector<PreTokenizerPointer> read_pre_tokenizers(const formats::JsonObject& object, bool& bytes);
// `end` becomes at least one more than each id that it adds.
PostProcessorPointer read_post_processor(const formats::JsonObject& object, std::uint64_t& end);
DecoderPointer read_decoder(const formats::JsonObject& object);

// A model. `bytes` says whether it could take bytes instead of byte characters; it is told by `take_bytes`.
struct ReadModel {
    std::unique_ptr<Model> model;
    std::function<void()> take_bytes; // empty: it cannot
};
ReadModel read_model(const formats::JsonObject& object);
std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& where);

} // namespace tutti::text

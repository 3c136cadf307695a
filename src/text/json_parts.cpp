#include "text/json_parts.h"

#include "base/error.h"
#include "text/unicode.h"

#include <utility>

namespace tutti::text {

using formats::in_quotes;
using formats::JsonObject;

namespace {

// SentencePiece's maps stand in base64.
std::string from_base64(std::string_view text, const std::string& where) {
    static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 3);
    std::uint32_t bits = 0;
    int count = 0;
    for (char c : text) {
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) fail("{} is not base64: it has {}", where, in_quotes(std::string(1, c)));
        bits = (bits << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFFFF;
        if ((count += 6) < 8) continue;
        count -= 8;
        bytes += static_cast<char>(static_cast<unsigned char>(bits >> count & 0xFF));
    }
    return bytes;
}

std::string type_of(const JsonObject& object) { return object.string("type"); }

void add_normalizers(const JsonObject& object, std::vector<NormalizerPointer>& parts) {
    const std::string type = type_of(object);
    if (parts.size() == most_parts) fail("{} has more than {} parts", object.where(), most_parts);
    if (type == "Sequence") {
        for (const JsonObject& part : read_list(object, "normalizers")) add_normalizers(part, parts);
        return;
    }
    const auto read = [&]() -> NormalizerPointer {
        if (type == "NFC") return form_normalizer(NormalForm::nfc);
        if (type == "NFD") return form_normalizer(NormalForm::nfd);
        if (type == "NFKC") return form_normalizer(NormalForm::nfkc);
        if (type == "NFKD") return form_normalizer(NormalForm::nfkd);
        if (type == "Lowercase") return lowercase_normalizer();
        if (type == "StripAccents") return strip_accents_normalizer();
        if (type == "Strip") return strip_normalizer(object.boolean("strip_left"), object.boolean("strip_right"));
        if (type == "Replace")
            return replace_normalizer(read_pattern(object).pattern, read_short_text(object, "content"));
        if (type == "Prepend") return prepend_normalizer(read_short_text(object, "prepend"));
        if (type == "BertNormalizer" || type == "Bert")
            return bert_normalizer({object.boolean("clean_text"), object.boolean("handle_chinese_chars"),
                                    object.find_boolean("strip_accents"), object.boolean("lowercase")});
        if (type == "Nmt") return nmt_normalizer();
        if (type == "ByteLevel") return byte_level_normalizer();
        if (type == "Precompiled") {
            const std::string where = object.where() + ".precompiled_charsmap";
            return precompiled_normalizer(from_base64(object.string("precompiled_charsmap"), where), where);
        }
        fail("{}: there is no normalizer of the type {}", object.where(), in_quotes(type));
    };
    parts.push_back(read());
}

SplitBehavior read_behavior(const JsonObject& object, const std::string& name) {
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    fail("{}: behavior is {}, and should be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
         object.where(), in_quotes(name));
}

PreTokenizerPointer read_pre_tokenizer(const JsonObject& object, const std::string& type, bool characters) {
    if (type == "ByteLevel")
        return byte_level_pre_tokenizer(object.boolean("add_prefix_space"),
                                        object.find_boolean("use_regex").value_or(true), characters);
    if (type == "Split") {
        ReadPattern read = read_pattern(object);
        return split_pre_tokenizer(std::move(read.pattern), read.expression,
                                   read_behavior(object, object.string("behavior")), object.boolean("invert"));
    }
    if (type == "Metaspace")
        return metaspace_pre_tokenizer(read_character(object, "replacement"), read_prepend_scheme(object),
                                       object.find_boolean("split").value_or(true));
    if (type == "Whitespace") return whitespace_pre_tokenizer();
    if (type == "WhitespaceSplit") return whitespace_split_pre_tokenizer();
    if (type == "Punctuation")
        return punctuation_pre_tokenizer(read_behavior(object, object.find_string("behavior").value_or("Isolated")));
    if (type == "Digits") return digits_pre_tokenizer(object.boolean("individual_digits"));
    if (type == "CharDelimiterSplit") return delimiter_pre_tokenizer(read_character(object, "delimiter"));
    if (type == "UnicodeScripts") return unicode_scripts_pre_tokenizer();
    if (type == "FixedLength") {
        const std::uint64_t length = object.find("length") != nullptr ? read_count(object, "length") : 5;
        if (length == 0) fail("{}: length is 0, and should be at least 1", object.where());
        return fixed_length_pre_tokenizer(length);
    }
    fail("{}: there is no pre_tokenizer of the type {}", object.where(), in_quotes(type));
}

// Sequences within sequences, one after another; BertPreTokenizer is two.
void flatten(const JsonObject& object, std::vector<std::pair<JsonObject, std::string>>& flat) {
    const std::string type = type_of(object);
    if (type == "Sequence") {
        for (const JsonObject& part : read_list(object, "pretokenizers")) flatten(part, flat);
    } else if (type == "BertPreTokenizer") {
        flat.emplace_back(object, "WhitespaceSplit");
        flat.emplace_back(object, "Punctuation");
    } else {
        flat.emplace_back(object, type);
    }
    if (flat.size() > most_parts) fail("{} has more than {} parts", object.where(), most_parts);
}

void add_decoders(const JsonObject& object, std::vector<DecoderPointer>& parts) {
    const std::string type = type_of(object);
    if (parts.size() == most_parts) fail("{} has more than {} parts", object.where(), most_parts);
    if (type == "Sequence") {
        for (const JsonObject& part : read_list(object, "decoders")) add_decoders(part, parts);
        return;
    }
    const auto read = [&]() -> DecoderPointer {
        if (type == "ByteLevel") return byte_level_decoder();
        if (type == "ByteFallback") return byte_fallback_decoder();
        if (type == "Fuse") return fuse_decoder();
        if (type == "WordPiece")
            return word_piece_decoder(read_short_text(object, "prefix"), object.boolean("cleanup"));
        if (type == "BPEDecoder") return bpe_decoder(read_short_text(object, "suffix"));
        if (type == "Metaspace")
            return metaspace_decoder(read_character(object, "replacement"), read_prepend_scheme(object));
        if (type == "CTC")
            return ctc_decoder(read_short_text(object, "pad_token"), read_short_text(object, "word_delimiter_token"),
                               object.boolean("cleanup"));
        if (type == "Replace") return replace_decoder(read_pattern(object).pattern, read_short_text(object, "content"));
        if (type == "Strip")
            return strip_decoder(read_character(object, "content"), read_count(object, "start"),
                                 read_count(object, "stop"));
        fail("{}: there is no decoder of the type {}", object.where(), in_quotes(type));
    };
    parts.push_back(read());
}

} // namespace

JsonObject part_of(const JsonObject& object, std::string_view key) {
    return JsonObject(object.object(key).value(), fmt::format("{}: {}", object.where(), key));
}

char32_t read_character(const JsonObject& object, std::string_view key) {
    const std::string text = object.string(key);
    std::size_t place = 0;
    const char32_t character = text.empty() ? 0 : next_character(text, place);
    if (text.empty() || place != text.size())
        fail("{}: {} is {}, and should be one character", object.where(), key, in_quotes(text));
    return character;
}

std::string read_short_text(const JsonObject& object, std::string_view key) {
    std::string text = object.string(key);
    if (text.size() > longest_content)
        fail("{}: {} takes {} bytes, and at most {} are read", object.where(), key, text.size(), longest_content);
    return text;
}

std::uint64_t read_count(const JsonObject& object, std::string_view key) {
    const std::int64_t count = object.integer(key);
    if (count < 0) fail("{}: {} is {}, and should be at least 0", object.where(), key, count);
    return static_cast<std::uint64_t>(count);
}

Id read_id(const nlohmann::json& value, const std::string& where) {
    constexpr std::uint64_t most = 1u << 30;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
        fail("{} has an id that is no integer from 0 to {}", where, most);
    return static_cast<Id>(value.get<std::uint64_t>());
}

PrependScheme read_prepend_scheme(const JsonObject& object) {
    const auto scheme = object.find_string("prepend_scheme");
    const bool none = object.find_boolean("add_prefix_space") == false;
    if (none && scheme && *scheme != "never")
        fail("{}: add_prefix_space is false, but prepend_scheme is {}", object.where(), in_quotes(*scheme));
    if (none || scheme == "never") return PrependScheme::never;
    if (scheme == "first") return PrependScheme::first;
    if (!scheme || *scheme == "always") return PrependScheme::always;
    fail("{}: prepend_scheme is {}, and should be first, never or always", object.where(), in_quotes(*scheme));
}

ReadPattern read_pattern(const JsonObject& object) {
    const JsonObject pattern = part_of(object, "pattern");
    if (pattern.find("String") != nullptr)
        return {Pattern::of_text(read_short_text(pattern, "String"), pattern.where()), false};
    return {Pattern::of_expression(pattern.string("Regex"), pattern.where()), true};
}

std::vector<JsonObject> read_list(const JsonObject& object, std::string_view key) {
    const nlohmann::json& list = object.list(key);
    if (list.size() > most_parts)
        fail("{}.{} has {} parts, and at most {} are read", object.where(), key, list.size(), most_parts);
    std::vector<JsonObject> parts;
    for (std::size_t i = 0; i < list.size(); ++i)
        parts.emplace_back(list[i], fmt::format("{}.{}[{}]", object.where(), key, i));
    return parts;
}

NormalizerPointer read_normalizer(const JsonObject& object) {
    std::vector<NormalizerPointer> parts;
    add_normalizers(object, parts);
    if (parts.size() == 1) return std::move(parts[0]);
    return sequence_normalizer(std::move(parts));
}

std::vector<PreTokenizerPointer> read_pre_tokenizers(const JsonObject& object, bool& bytes) {
    std::vector<std::pair<JsonObject, std::string>> flat;
    flatten(object, flat);
    bytes = bytes && !flat.empty() && flat.back().second == "ByteLevel";
    std::vector<PreTokenizerPointer> parts;
    for (std::size_t i = 0; i < flat.size(); ++i)
        parts.push_back(read_pre_tokenizer(flat[i].first, flat[i].second, !(bytes && i + 1 == flat.size())));
    return parts;
}

DecoderPointer read_decoder(const JsonObject& object) {
    std::vector<DecoderPointer> parts;
    add_decoders(object, parts);
    return sequence_decoder(std::move(parts));
}

std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& where) {
    if (!list.is_array()) fail("{} should be a list", where);
    std::vector<AddedToken> tokens;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const JsonObject object(list[i], fmt::format("{}[{}]", where, i));
        const auto flag = [&](std::string_view key) { return object.find_boolean(key).value_or(false); };
        AddedToken token;
        token.content = read_short_text(object, "content");
        token.single_word = flag("single_word");
        token.lstrip = flag("lstrip");
        token.rstrip = flag("rstrip");
        token.special = flag("special");
        token.normalized = object.find_boolean("normalized").value_or(!token.special);
        tokens.push_back(std::move(token));
    }
    return tokens;
}

} // namespace tutti::text

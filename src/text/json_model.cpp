#include "base/error.h"
#include "text/bpe.h"
#include "text/json_parts.h"
#include "text/unigram.h"
#include "text/word_level.h"
#include "text/word_piece.h"

#include <utility>

namespace tutti::text {
namespace {

using formats::in_quotes;
using formats::JsonObject;

Vocabulary read_vocabulary(const JsonObject& object) {
    const JsonObject tokens = part_of(object, "vocab");
    std::uint64_t largest = 0;
    for (const auto& [token, id] : tokens.value().items())
        largest = std::max<std::uint64_t>(largest, read_id(id, tokens.where()));
    Vocabulary::check_ids(tokens.value().size(), largest, tokens.where());
    Vocabulary vocabulary;
    for (const auto& [token, id] : tokens.value().items()) vocabulary.add(token, read_id(id, tokens.where()));
    return vocabulary;
}

// "a b", or ["a", "b"].
Bpe::Merges read_merges(const JsonObject& object) {
    const nlohmann::json& list = object.list("merges");
    Bpe::Merges merges;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const auto refuse = [&] {
            fail("{}.merges[{}] should be two tokens, as \"a b\" or as [\"a\", \"b\"]", object.where(), i);
        };
        const nlohmann::json& merge = list[i];
        if (merge.is_array()) {
            if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
            merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
            continue;
        }
        if (!merge.is_string()) refuse();
        const auto& text = merge.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue; // the first line of merges.txt
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return merges;
}

ReadModel read_bpe(const JsonObject& object) {
    if (object.find_number("dropout").value_or(0) != 0)
        fail("{}: dropout is {}, with which the same text has other tokens each time; set it to null", object.where(),
             object.number("dropout"));
    BpeOptions options;
    options.unknown = object.find_string("unk_token");
    options.continuing_prefix = object.find_string("continuing_subword_prefix").value_or("");
    options.end_suffix = object.find_string("end_of_word_suffix").value_or("");
    for (const std::string& text : {options.continuing_prefix, options.end_suffix})
        if (text.size() > longest_content)
            fail("{}: a prefix or suffix takes {} bytes, and at most {} are read", object.where(), text.size(),
                 longest_content);
    options.fuse_unknown = object.find_boolean("fuse_unk").value_or(false);
    options.byte_fallback = object.find_boolean("byte_fallback").value_or(false);
    options.ignore_merges = object.find_boolean("ignore_merges").value_or(false);
    auto model = std::make_unique<Bpe>(read_vocabulary(object), read_merges(object), options, object.where());
    Bpe& bpe = *model;
    ReadModel read{std::move(model), {}};
    if (bpe.can_take_bytes()) read.take_bytes = [&bpe] { bpe.take_bytes(); };
    return read;
}

ReadModel read_word_piece(const JsonObject& object) {
    WordPieceOptions options{object.string("unk_token"), object.string("continuing_subword_prefix"),
                             read_count(object, "max_input_chars_per_word")};
    return {std::make_unique<WordPiece>(read_vocabulary(object), std::move(options), object.where()), {}};
}

ReadModel read_unigram(const JsonObject& object) {
    const nlohmann::json& list = object.list("vocab");
    Unigram::Pieces pieces;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const nlohmann::json& piece = list[i];
        if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number())
            fail("{}.vocab[{}] should be a list of a token and its score", object.where(), i);
        pieces.emplace_back(piece[0].get<std::string>(), piece[1].get<double>());
    }
    std::optional<std::uint64_t> unknown;
    if (object.find("unk_id") != nullptr) unknown = read_count(object, "unk_id");
    return {std::make_unique<Unigram>(pieces, unknown, object.find_boolean("byte_fallback").value_or(false),
                                      object.where()),
            {}};
}

// Older files do not say what their model is.
std::string guessed_type(const JsonObject& object) {
    if (object.find("merges") != nullptr) return "BPE";
    if (const nlohmann::json* vocabulary = object.find("vocab"); vocabulary != nullptr && vocabulary->is_array())
        return "Unigram";
    return object.find("continuing_subword_prefix") != nullptr ? "WordPiece" : "WordLevel";
}

} // namespace

ReadModel read_model(const JsonObject& object) {
    const std::string type = object.find_string("type").value_or(guessed_type(object));
    if (type == "BPE") return read_bpe(object);
    if (type == "WordPiece") return read_word_piece(object);
    if (type == "WordLevel")
        return {std::make_unique<WordLevel>(read_vocabulary(object), object.string("unk_token"), object.where()), {}};
    if (type == "Unigram") return read_unigram(object);
    fail("{}: there is no model of the type {}; BPE, WordPiece, WordLevel and Unigram are read", object.where(),
         in_quotes(type));
}

} // namespace tutti::text

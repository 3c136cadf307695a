#include "base/error.h"
#include "text/json_parts.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::text {
namespace {

using formats::in_quotes;
using formats::JsonObject;

constexpr std::size_t most_special = 1024; // ids that a template adds for one name

// The ids for each name of a template.
std::map<std::string, std::vector<Id>> read_special_tokens(const JsonObject& object, std::uint64_t& end) {
    const JsonObject tokens = part_of(object, "special_tokens");
    std::map<std::string, std::vector<Id>> special;
    for (const auto& [name, value] : tokens.value().items()) {
        const JsonObject token(value, tokens.where() + "." + in_quotes(name));
        const nlohmann::json& ids = token.list("ids");
        if (ids.size() > most_special)
            fail("{} has {} ids, and at most {} are read", token.where(), ids.size(), most_special);
        for (const nlohmann::json& id : ids) {
            special[name].push_back(read_id(id, token.where()));
            end = std::max<std::uint64_t>(end, special[name].back() + 1);
        }
        special.try_emplace(name);
    }
    return special;
}

std::vector<TemplatePiece> read_template(const JsonObject& object, std::string_view key,
                                         const std::map<std::string, std::vector<Id>>& special) {
    std::vector<TemplatePiece> pieces;
    for (const JsonObject& piece : read_list(object, key)) {
        if (piece.find("Sequence") != nullptr) {
            const std::string id = part_of(piece, "Sequence").string("id");
            if (id != "A" && id != "B") fail("{}: the sequence {} is neither A nor B", piece.where(), in_quotes(id));
            pieces.push_back({{}, id == "A" ? 0u : 1u});
            continue;
        }
        const std::string id = part_of(piece, "SpecialToken").string("id");
        const auto found = special.find(id);
        if (found == special.end())
            fail("{}: the special token {} is not among special_tokens", piece.where(), in_quotes(id));
        pieces.push_back({found->second, std::nullopt});
    }
    return pieces;
}

// ["[SEP]", 102]
Id read_token(const JsonObject& object, std::string_view key, std::uint64_t& end) {
    const nlohmann::json& pair = object.list(key);
    const std::string where = fmt::format("{}.{}", object.where(), key);
    if (pair.size() != 2) fail("{} should be a list of a token and its id", where);
    const Id id = read_id(pair[1], where);
    end = std::max<std::uint64_t>(end, id + 1);
    return id;
}

PostProcessorPointer read(const JsonObject& object, std::uint64_t& end, std::size_t& parts) {
    if (++parts > most_parts) fail("{} has more than {} parts", object.where(), most_parts);
    const std::string type = object.string("type");
    if (type == "ByteLevel") return plain_processor();
    if (type == "BertProcessing" || type == "RobertaProcessing")
        return bert_processor(read_token(object, "cls", end), read_token(object, "sep", end),
                              type == "RobertaProcessing");
    if (type == "TemplateProcessing") {
        const auto special = read_special_tokens(object, end);
        return template_processor(read_template(object, "single", special), read_template(object, "pair", special),
                                  object.where());
    }
    if (type == "Sequence") {
        std::vector<PostProcessorPointer> processors;
        for (const JsonObject& part : read_list(object, "processors")) processors.push_back(read(part, end, parts));
        return sequence_processor(std::move(processors));
    }
    fail("{}: there is no post_processor of the type {}", object.where(), in_quotes(type));
}

} // namespace

PostProcessorPointer read_post_processor(const JsonObject& object, std::uint64_t& end) {
    std::size_t parts = 0;
    PostProcessorPointer processor = read(object, end, parts);
    for (bool special_tokens : {false, true}) processor->check(1, special_tokens);
    return processor;
}

} // namespace tutti::text

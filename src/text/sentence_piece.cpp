// Models of SentencePiece by its own library, with added tokens as Transformers puts them around it.
#include "base/error.h"
#include "formats/json.h"
#include "text/added_tokens.h"
#include "text/json_parts.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tutti::text {
namespace {

using formats::JsonObject;
using sentencepiece::SentencePieceProcessor;

constexpr std::uint64_t largest_model = 64ull << 20;
constexpr std::size_t longest_sentence = std::numeric_limits<int>::max() / 16; // its places are ints

void check(const sentencepiece::util::Status& status, const std::string& what) {
    if (!status.ok()) fail("{}: {}", what, status.ToString());
}

// The tokens of a SentencePiece model as a Model, so that added tokens find theirs among them.
class Pieces final : public Model {
  public:
    explicit Pieces(const SentencePieceProcessor& processor) : processor_(processor) {
        for (int id = 0; id < processor.GetPieceSize(); ++id)
            vocabulary_.add(processor.IdToPiece(id), static_cast<Id>(id));
    }
    void encode(std::string_view text, std::vector<Id>& ids) const override {
        if (text.size() > longest_sentence)
            fail("a text of {} bytes is too long for SentencePiece, which takes {}", text.size(), longest_sentence);
        std::vector<int> pieces;
        check(processor_.Encode(text, &pieces), "SentencePiece cannot encode a text");
        ids.insert(ids.end(), pieces.begin(), pieces.end());
    }
    const Vocabulary& vocabulary() const override { return vocabulary_; }

  private:
    const SentencePieceProcessor& processor_;
    Vocabulary vocabulary_;
};

// What tokenizer_config.json says, which may be absent.
struct Config {
    bool begin = false, end = false; // a special token before and behind each text
    std::vector<std::pair<std::uint64_t, AddedToken>> added{};
};

Config read_config(const fs::path& path) {
    Config config;
    if (!is_there(path)) return config;
    const nlohmann::json value = formats::read_json(path);
    const JsonObject object(value, path.string());
    const std::string kind = object.find_string("tokenizer_class").value_or("");
    const auto is_of = [&](std::initializer_list<std::string_view> families) {
        return std::ranges::any_of(families, [&](std::string_view family) { return kind.starts_with(family); });
    };
    config.begin = object.find_boolean("add_bos_token").value_or(is_of({"Llama", "CodeLlama", "Gemma"}));
    config.end = object.find_boolean("add_eos_token").value_or(is_of({"T5", "MT5", "Pegasus"}));
    if (object.find("added_tokens_decoder") == nullptr) return config;
    const JsonObject tokens = part_of(object, "added_tokens_decoder");
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [key, token] : tokens.value().items()) {
        const bool number =
            !key.empty() && key.size() < 10 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
        if (!number) fail("{} has the key {}, which is no id", tokens.where(), formats::in_quotes(key));
        config.added.emplace_back(std::stoull(key), AddedToken{});
        list.push_back(token);
    }
    std::vector<AddedToken> read = read_added_tokens(list, tokens.where());
    for (std::size_t i = 0; i < read.size(); ++i) config.added[i].second = std::move(read[i]);
    std::ranges::sort(config.added, {}, [](const auto& entry) { return entry.first; });
    return config;
}

class SentencePiece final : public Tokenizer {
  public:
    explicit SentencePiece(const fs::path& path) {
        if (const InputFile file(path); file.size() > largest_model)
            fail("{} holds {} bytes, and a tokenizer.model at most {}", path.string(), file.size(), largest_model);
        check(processor_.LoadFromSerializedProto(read_text(path)),
              path.string() + " is no model of SentencePiece that can be read");
        pieces_ = std::make_unique<Pieces>(processor_);
        const Config config = read_config(path.parent_path() / "tokenizer_config.json");
        std::vector<AddedToken> tokens;
        for (const auto& [id, token] : config.added) {
            tokens.push_back(token);
            tokens.back().normalized = false; // found in the text as it is
        }
        added_.add(tokens, *pieces_, nullptr);
        for (const auto& [id, token] : config.added)
            if (!token.content.empty() && added_.id(token.content) != id)
                fail("{}: the added token {} has the id {}, and would get {}", path.string(),
                     formats::in_quotes(token.content), id, added_.id(token.content).value_or(0));
        if (config.begin) begin_ = special(processor_.bos_id(), path, "beginning");
        if (config.end) end_ = special(processor_.eos_id(), path, "end");
        for (int id = 0; id < processor_.GetPieceSize(); ++id)
            if (processor_.IsControl(id)) control_.push_back(static_cast<Id>(id));
    }

    std::unique_ptr<Encoder> encoder() const override;
    std::string decode(std::span<const Id> ids, bool skip_special_tokens) const override;
    std::optional<Id> id_of(std::string_view token) const override {
        if (const auto id = added_.id(std::string(token))) return id;
        return pieces_->vocabulary().find(token);
    }
    std::uint64_t end_of_ids() const override { return std::max(pieces_->vocabulary().end(), added_.end()); }

    void encode_text(std::string_view text, bool special_tokens, std::vector<Id>& ids) const {
        check_utf8(text, "the text");
        if (special_tokens && begin_) ids.push_back(*begin_);
        for (const AddedTokens::Part& part : added_.find_in_input(text)) {
            if (part.id)
                ids.push_back(*part.id);
            else
                pieces_->encode(text.substr(part.begin, part.end - part.begin), ids);
        }
        if (special_tokens && end_) ids.push_back(*end_);
    }

  private:
    static Id special(int id, const fs::path& path, std::string_view what) {
        if (id < 0)
            fail("tokenizer_config.json asks for a token at the {} of texts, and {} has none", what, path.string());
        return static_cast<Id>(id);
    }

    SentencePieceProcessor processor_;
    std::unique_ptr<const Pieces> pieces_;
    AddedTokens added_;
    std::optional<Id> begin_, end_;
    std::vector<Id> control_; // pieces that stand for no text, in order
};

class SentencePieceEncoder final : public Encoder {
  public:
    explicit SentencePieceEncoder(const SentencePiece& tokenizer) : tokenizer_(tokenizer) {}
    void encode(std::string_view text, bool special_tokens, std::vector<Id>& ids) override {
        tokenizer_.encode_text(text, special_tokens, ids);
    }

  private:
    const SentencePiece& tokenizer_;
};

std::unique_ptr<Encoder> SentencePiece::encoder() const { return std::make_unique<SentencePieceEncoder>(*this); }

// Pieces between added tokens are decoded together: only the first of them loses its space.
std::string SentencePiece::decode(std::span<const Id> ids, bool skip_special_tokens) const {
    std::string text;
    std::vector<int> pieces;
    const auto finish = [&] {
        std::string part;
        check(processor_.Decode(pieces, &part), "SentencePiece cannot decode");
        text += part;
        pieces.clear();
    };
    for (Id id : ids) {
        const auto added = added_.token(id);
        const bool control = std::ranges::binary_search(control_, id);
        if (!added && !control) {
            if (id < pieces_->vocabulary().end()) pieces.push_back(static_cast<int>(id));
            continue;
        }
        finish();
        const bool is_special = control || added_.is_special(*added);
        if (!(skip_special_tokens && is_special)) text += added ? *added : *pieces_->vocabulary().token(id);
    }
    finish();
    return text;
}

} // namespace

std::unique_ptr<const Tokenizer> open_sentence_piece(const fs::path& model) {
    return std::make_unique<SentencePiece>(model);
}

} // namespace tutti::text

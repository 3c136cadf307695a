#include "text/pipeline.h"

#include "text/unicode.h"
#include "text/word_cache.h"

#include <algorithm>
#include <utility>

namespace tutti::text {
namespace {

class PipelineEncoder final : public Encoder {
  public:
    explicit PipelineEncoder(const Stages& stages) : stages_(stages) {}

    void encode(std::string_view text, bool special_tokens, std::vector<Id>& ids) override {
        check_utf8(text, "the text");
        if (stages_.post_processor == nullptr) return encode_text(text, ids);
        Encodings parts(1);
        encode_text(text, parts[0]);
        for (const std::vector<Id>& part : stages_.post_processor->apply(std::move(parts), special_tokens))
            ids.insert(ids.end(), part.begin(), part.end());
    }

  private:
    void encode_text(std::string_view text, std::vector<Id>& ids) {
        OwnedTexts owned(text.size());
        Section section;
        for (const AddedTokens::Part& part : stages_.added.find_in_input(text)) {
            if (part.id) {
                ids.push_back(*part.id);
                continue;
            }
            if (part.begin == part.end) continue;
            const std::size_t at_start = part.begin == 0 ? length_from(text[0]) : 0;
            Piece piece{text.substr(part.begin, part.end - part.begin), at_start};
            if (stages_.normalizer != nullptr) {
                section = {std::string(piece.text), at_start};
                stages_.normalizer->apply(section);
                piece = {section.text, section.at_start};
            }
            encode_normalized(piece, owned, ids);
        }
    }

    void encode_normalized(const Piece& piece, OwnedTexts& owned, std::vector<Id>& ids) {
        for (const AddedTokens::Part& part : stages_.added.find_in_normalized(piece.text)) {
            if (part.id)
                ids.push_back(*part.id);
            else if (part.begin < part.end)
                encode_pieces(piece.part(part.begin, part.end), owned, ids);
        }
    }

    void encode_pieces(const Piece& piece, OwnedTexts& owned, std::vector<Id>& ids) {
        Words words(*this, ids);
        std::vector<Stage> stages; // the last first
        stages.reserve(stages_.pre_tokenizers.size());
        PieceSink* next = &words;
        for (std::size_t i = stages_.pre_tokenizers.size(); i-- > 0;)
            next = &stages.emplace_back(*stages_.pre_tokenizers[i], owned, *next);
        next->take(piece);
    }

    void encode_word(std::string_view word, std::vector<Id>& ids) {
        if (word.size() > WordCache::longest_word) return stages_.model->encode(word, ids);
        const std::uint64_t hash = hash_of(word);
        if (cache_.find(word, hash, ids)) return;
        const std::size_t before = ids.size();
        stages_.model->encode(word, ids);
        cache_.keep(word, hash, std::span(ids).subspan(before));
    }

    // Pieces go from stage to stage one by one, so that a long text is never held in pieces.
    class Stage final : public PieceSink {
      public:
        Stage(const PreTokenizer& pre_tokenizer, OwnedTexts& owned, PieceSink& next)
            : pre_tokenizer_(pre_tokenizer), owned_(owned), next_(next) {}
        void take(const Piece& piece) override { pre_tokenizer_.cut(piece, owned_, next_); }

      private:
        const PreTokenizer& pre_tokenizer_;
        OwnedTexts& owned_;
        PieceSink& next_;
    };

    // The last stage: words for the model.
    class Words final : public PieceSink {
      public:
        Words(PipelineEncoder& encoder, std::vector<Id>& ids) : encoder_(encoder), ids_(ids) {}
        void take(const Piece& piece) override {
            for (std::size_t begin = 0, end = 0; begin < piece.text.size(); begin = end) {
                end = encoder_.stages_.model->next_cut(piece.text, begin);
                encoder_.encode_word(piece.text.substr(begin, end - begin), ids_);
            }
        }

      private:
        PipelineEncoder& encoder_;
        std::vector<Id>& ids_;
    };

    const Stages& stages_;
    WordCache cache_;
};

} // namespace

std::unique_ptr<Encoder> Pipeline::encoder() const { return std::make_unique<PipelineEncoder>(stages_); }

std::string Pipeline::decode(std::span<const Id> ids, bool skip_special_tokens) const {
    Tokens tokens;
    for (Id id : ids) {
        auto token = stages_.added.token(id);
        if (!token) token = stages_.model->vocabulary().token(id);
        if (token && !(skip_special_tokens && stages_.added.is_special(*token))) tokens.emplace_back(*token);
    }
    if (stages_.decoder == nullptr) return fmt::format("{}", fmt::join(tokens, " "));
    return fmt::format("{}", fmt::join(stages_.decoder->apply(std::move(tokens)), ""));
}

std::optional<Id> Pipeline::id_of(std::string_view token) const {
    if (const auto id = stages_.added.id(std::string(token))) return id;
    return stages_.model->vocabulary().find(token);
}

std::uint64_t Pipeline::end_of_ids() const {
    return std::max<std::uint64_t>(
        {stages_.model->vocabulary().end(), stages_.added.end(), stages_.end_of_processor_ids});
}

} // namespace tutti::text

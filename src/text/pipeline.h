// The stages of a tokenizer.json in their order: added tokens, normalizer, pre-tokenizers, model, post-processor; and
// back by its decoder.
#pragma once

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace tutti::text {

struct Stages {
    std::unique_ptr<const Model> model;
    AddedTokens added;
    NormalizerPointer normalizer; // those that may be null: none
    std::vector<PreTokenizerPointer> pre_tokenizers;
    PostProcessorPointer post_processor;    // null: none
    DecoderPointer decoder;                 // null: tokens are joined with spaces
    std::uint64_t end_of_processor_ids = 0; // beyond the largest id that the post-processor adds
};

class Pipeline final : public Tokenizer {
  public:
    explicit Pipeline(Stages stages) : stages_(std::move(stages)) {}

    using Tokenizer::encode;
    std::unique_ptr<Encoder> encoder() const override;
    std::string decode(std::span<const Id> ids, bool skip_special_tokens) const override;
    std::optional<Id> id_of(std::string_view token) const override;
    std::uint64_t end_of_ids() const override;

  private:
    Stages stages_;
};

} // namespace tutti::text

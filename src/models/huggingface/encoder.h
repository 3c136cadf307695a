// The encoder that BERT and RoBERTa share: post-norm blocks that see the whole sequence.
#pragma once

#include "models/huggingface/family.h"

namespace tutti::models::huggingface {

// BERT's and RoBERTa's keys are the same but for the size of the vocabulary and the padding token.
Keys encoder_keys(std::int64_t vocabulary, std::int64_t padding);

// Embeddings and blocks, up to the last hidden states. `places` are rows of the table of positions, [t] or [b,t].
ValueId encoder(Builder& builder, const Config& config, const std::string& base, ValueId places,
                std::int64_t padding_place);

// The head's last step: the embedding with one bias where tied. Untied checkpoints hold a second bias that nothing
// reads; it is kept, to be saved again.
ValueId masked_head(Builder& builder, const Config& config, ValueId x, const std::string& embedding,
                    const std::string& head);

} // namespace tutti::models::huggingface

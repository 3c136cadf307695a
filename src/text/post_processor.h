// Post-processors: special tokens around the ids of an input.
#pragma once

#include "text/vocabulary.h"

#include <memory>
#include <optional>
#include <vector>

namespace tutti::text {

// The ids of an input, in the parts that processors have made of it so far.
using Encodings = std::vector<std::vector<Id>>;

class PostProcessor {
  public:
    virtual ~PostProcessor() = default;
    // How many parts become of so many; Error where it takes no such number.
    virtual std::size_t check(std::size_t parts, bool special_tokens) const = 0;
    virtual Encodings apply(Encodings parts, bool special_tokens) const = 0; // thread-safe
};

using PostProcessorPointer = std::unique_ptr<const PostProcessor>;

// A piece of a template: special tokens, or one of the inputs.
struct TemplatePiece {
    std::vector<Id> ids;
    std::optional<std::size_t> input;
};

// `single` for one part, `pair` for two. Error names `where`.
PostProcessorPointer template_processor(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair,
                                        std::string where);
// BERT: first parts last ... parts last. RoBERTa: every part but the first begins with `last`, too.
PostProcessorPointer bert_processor(Id first, Id last, bool roberta);
// Leaves ids as they are, as ByteLevel does: only offsets would change.
PostProcessorPointer plain_processor();
PostProcessorPointer sequence_processor(std::vector<PostProcessorPointer> processors);

} // namespace tutti::text

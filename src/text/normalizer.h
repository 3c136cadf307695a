// Normalizers: how a text is changed before it is cut into words.
#pragma once

#include "text/pattern.h"
#include "text/unicode.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::text {

// A part of an input while it is normalized. `at_start` as in Piece.
struct Section {
    std::string text;
    std::size_t at_start = 0;
};

class Normalizer {
  public:
    virtual ~Normalizer() = default;
    virtual void apply(Section& section) const = 0; // thread-safe
};

using NormalizerPointer = std::unique_ptr<const Normalizer>;

struct BertNormalizerOptions {
    bool clean_text = true;              // no control characters; all white space as spaces
    bool handle_chinese_chars = true;    // spaces around ideographs
    std::optional<bool> strip_accents{}; // as lowercase where it is not said
    bool lowercase = true;
};

NormalizerPointer sequence_normalizer(std::vector<NormalizerPointer> parts);
NormalizerPointer form_normalizer(NormalForm form);
NormalizerPointer lowercase_normalizer();
NormalizerPointer strip_accents_normalizer();
NormalizerPointer strip_normalizer(bool left, bool right);
NormalizerPointer replace_normalizer(Pattern pattern, std::string content);
NormalizerPointer prepend_normalizer(std::string prefix);
NormalizerPointer bert_normalizer(BertNormalizerOptions options);
NormalizerPointer nmt_normalizer();
NormalizerPointer byte_level_normalizer();
// A character map of SentencePiece, in its binary form; Error that names `where` for one that is damaged.
NormalizerPointer precompiled_normalizer(std::string_view map, const std::string& where);

} // namespace tutti::text

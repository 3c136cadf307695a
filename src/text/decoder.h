// Decoders: from tokens back to text.
#pragma once

#include "text/pattern.h"
#include "text/pre_tokenizer.h"

#include <memory>
#include <string>
#include <vector>

namespace tutti::text {

using Tokens = std::vector<std::string>;

class Decoder {
  public:
    virtual ~Decoder() = default;
    // What becomes of the tokens; joined, they are the text. Thread-safe.
    virtual Tokens apply(Tokens tokens) const = 0;
};

using DecoderPointer = std::unique_ptr<const Decoder>;

DecoderPointer sequence_decoder(std::vector<DecoderPointer> parts);
DecoderPointer byte_level_decoder();
DecoderPointer byte_fallback_decoder();
DecoderPointer fuse_decoder();
DecoderPointer word_piece_decoder(std::string prefix, bool cleanup);
DecoderPointer bpe_decoder(std::string suffix);
DecoderPointer metaspace_decoder(char32_t replacement, PrependScheme scheme);
DecoderPointer ctc_decoder(std::string padding, std::string word_delimiter, bool cleanup);
DecoderPointer replace_decoder(Pattern pattern, std::string content);
DecoderPointer strip_decoder(char32_t content, std::uint64_t start, std::uint64_t stop);

} // namespace tutti::text

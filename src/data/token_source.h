// Where training tokens come from: a numbered sequence of samples, each `sequence` input tokens with their targets.
// Reading a sample has no side effects, so order and state belong to the Sampler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

constexpr std::int64_t ignored_target = -100; // a position that does not count in the loss

// How tokens came to be: by a tokenizer, before Tutti saw them; or as the bytes of a text file or of built-in stories.
enum class TokenOrigin { tokenizer, text, builtin };

class TokenSource {
  public:
    virtual ~TokenSource() = default;

    virtual std::int64_t samples() const = 0;  // at least one
    virtual std::int64_t sequence() const = 0; // tokens of a sample
    // Both spans hold `sequence` tokens. Inputs are never negative, targets only where they are ignored. Thread-safe.
    virtual void read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const = 0;

    // Whether samples are documents one behind the other. Then for each token of a sample: the position at which its
    // document begins. Documents are in order, the first begins at 0 and each at its own first token.
    virtual bool has_documents() const { return false; }
    virtual void read_documents(std::int64_t /*sample*/, std::span<std::int32_t> begins) const {
        std::ranges::fill(begins, 0);
    }

    // Samples are to be used in their order, never shuffled; the file says what each step trains on.
    virtual bool ordered() const { return false; }
    // Samples of one step in an ordered source (sample = step * batch + row): --global-batch must equal it. Otherwise
    // 0.
    virtual std::int64_t batch() const { return 0; }
    // All tokens are below this: 256 where tokens are bytes; 0 where the format does not tell.
    virtual std::int64_t vocabulary() const { return 0; }
    virtual TokenOrigin origin() const { return TokenOrigin::tokenizer; }

    virtual std::vector<std::string> files() const = 0; // that the tokens come from; none where they are made up
    virtual std::string name() const = 0;               // the file, for error sentences
    virtual std::string describe() const = 0;           // "stories.txt: 52417 bytes as tokens, 409 samples of 128"
};

// `spec` is "builtin" (generated stories), or a file: text (its bytes are the tokens), llm.c .bin, Megatron .bin + .idx
// (either name, or their common prefix), safetensors with input_ids, targets and, where sequences are documents one
// behind the other, documents [steps, batch, sequence]. What the file holds decides, then its name. JSON and JSON lines
// are an Error: their text would have to be taken out first. Sequence 0: the source's own, or 128.
std::unique_ptr<TokenSource> open_tokens(const std::string& spec, std::int64_t sequence);

// The formats of token files that are read, for sentences: "an llm.c .bin, ... or ...".
std::string_view token_formats();

// Error for a token that the model has no embedding for. Targets may be checked too: ignored ones pass.
void check_tokens(std::span<const std::int64_t> tokens, std::int64_t vocabulary, std::int64_t sample,
                  const TokenSource& source);

} // namespace tutti::data

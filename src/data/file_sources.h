// The file formats behind open_tokens, and what the causal ones share: a stream of tokens cut into samples that overlap
// by one, sample k being tokens [k * sequence, k * sequence + sequence].
#pragma once

#include "base/file.h"
#include "data/token_source.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::data {

constexpr std::int64_t default_sequence = 128;

// Targets are the inputs shifted by one.
class StreamSource : public TokenSource {
  public:
    // Error if there is not one whole sample.
    StreamSource(std::string name, std::int64_t tokens, std::int64_t sequence);

    std::int64_t samples() const final { return samples_; }
    std::int64_t sequence() const final { return sequence_; }
    void read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const final;
    std::string name() const final { return name_; }

  protected:
    virtual void read_tokens(std::int64_t first, std::span<std::int64_t> out) const = 0;
    std::string describe_as(std::string_view what) const; // "NAME: 52417 WHAT, 409 samples of 128"

  private:
    std::string name_;
    std::int64_t tokens_;
    std::int64_t sequence_;
    std::int64_t samples_;
};

enum class TokenType : std::uint8_t { uint8, int8, uint16, int16, uint32, int32, int64 };
std::uint64_t size_of(TokenType type);
std::string_view name_of(TokenType type);

// `count` integers of one type, from a byte of a file on. What it says has been checked against the file's size.
struct TokenArray {
    InputFile file;
    std::uint64_t offset = 0;
    TokenType type = TokenType::uint8;
    std::int64_t count = 0;
    std::string index{}; // the file that says what this one holds, where there is one
};

// An integer of a header, at any alignment.
template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

// What a file is, by its first bytes.
bool is_megatron_index(std::span<const std::byte> start);
bool is_llm_c(std::span<const std::byte> start);
bool is_safetensors(std::span<const std::byte> start, std::uint64_t file_bytes);

// Sequence 0: default_sequence, or what the file of batches holds.
std::unique_ptr<TokenSource> open_array(TokenArray tokens, std::string what, std::int64_t sequence);
std::unique_ptr<TokenSource> open_text(InputFile file, std::int64_t sequence);
std::unique_ptr<TokenSource> open_llm_c(InputFile file, std::int64_t sequence);
std::unique_ptr<TokenSource> open_megatron(const fs::path& tokens, const fs::path& index, std::int64_t sequence);
std::unique_ptr<TokenSource> open_batches(const fs::path& path, std::int64_t sequence);

} // namespace tutti::data

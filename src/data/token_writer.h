// Token files written as they are read here: llm.c's .bin, and Megatron's .bin with its .idx.
#pragma once

#include "base/file.h"

#include <cstdint>
#include <memory>
#include <span>

namespace tutti::data {

enum class TokenFormat : std::uint8_t { llm_c, megatron };

class TokenWriter {
  public:
    virtual ~TokenWriter() = default;
    // The tokens of one document, all below the `vocabulary` that the writer was made for.
    virtual void add(std::span<const std::uint32_t> document) = 0;
    // Without it no file stays.
    virtual void finish() = 0;
    virtual std::uint64_t tokens() const = 0;
    virtual std::string_view type() const = 0; // of a token: "uint16"
};

// Tokens take as few bytes as the format has for a vocabulary of this size. Megatron's index lies beside `path`, whose
// extension it replaces.
std::unique_ptr<TokenWriter> write_tokens(const fs::path& path, TokenFormat format, std::uint64_t vocabulary);

} // namespace tutti::data

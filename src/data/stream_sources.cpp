// Streams of tokens in files that hold one long row of integers; of these, text and llm.c.
#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "data/file_sources.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tutti::data {
namespace {

struct TokenTypeRow {
    std::uint64_t size;
    std::string_view name;
};
const TokenTypeRow& row_of(TokenType type) {
    static constexpr std::array<TokenTypeRow, 7> rows = {
        {{1, "uint8"}, {1, "int8"}, {2, "uint16"}, {2, "int16"}, {4, "uint32"}, {4, "int32"}, {8, "int64"}}};
    return rows[static_cast<std::size_t>(type)];
}

template <class T>
void widen(std::span<const std::byte> bytes, std::span<std::int64_t> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        out[i] = static_cast<std::int64_t>(value);
    }
}

void widen(TokenType type, std::span<const std::byte> bytes, std::span<std::int64_t> out) {
    switch (type) {
    case TokenType::uint8: return widen<std::uint8_t>(bytes, out);
    case TokenType::int8: return widen<std::int8_t>(bytes, out);
    case TokenType::uint16: return widen<std::uint16_t>(bytes, out);
    case TokenType::int16: return widen<std::int16_t>(bytes, out);
    case TokenType::uint32: return widen<std::uint32_t>(bytes, out);
    case TokenType::int32: return widen<std::int32_t>(bytes, out);
    case TokenType::int64: return widen<std::int64_t>(bytes, out);
    }
}

// Reads piece by piece; the file is never held whole.
class FileStream final : public StreamSource {
  public:
    FileStream(TokenArray tokens, std::string what, std::int64_t sequence, TokenOrigin origin = TokenOrigin::tokenizer)
        : StreamSource(tokens.file.path().string(), tokens.count, sequence == 0 ? default_sequence : sequence),
          tokens_(std::move(tokens)), what_(std::move(what)), origin_(origin) {}

    std::int64_t vocabulary() const override { return tokens_.type == TokenType::uint8 ? 256 : 0; }
    TokenOrigin origin() const override { return origin_; }
    std::vector<std::string> files() const override {
        if (tokens_.index.empty()) return {name()};
        return {name(), tokens_.index};
    }
    std::string describe() const override { return describe_as(what_); }

  private:
    void read_tokens(std::int64_t first, std::span<std::int64_t> out) const override {
        const std::uint64_t size = size_of(tokens_.type);
        std::array<std::byte, 1 << 14> buffer;
        for (auto position = static_cast<std::uint64_t>(first); !out.empty();) {
            const std::size_t count = std::min<std::size_t>(out.size(), buffer.size() / size);
            const std::span bytes(buffer.data(), count * size);
            tokens_.file.read(tokens_.offset + position * size, bytes);
            widen(tokens_.type, bytes, out.first(count));
            for (std::size_t i = 0; i < count; ++i)
                if (out[i] < 0)
                    fail("{} holds the token {} at position {}; tokens are not negative", name(), out[i], position + i);
            out = out.subspan(count);
            position += count;
        }
    }

    TokenArray tokens_;
    std::string what_;
    TokenOrigin origin_;
};

// llm.c's two kinds of token file.
struct LlmCKind {
    std::int32_t magic, version;
    TokenType type;
    std::string_view what;
};
constexpr std::array<LlmCKind, 2> llm_c_kinds = {
    {{20240520, 1, TokenType::uint16, "GPT-2 tokens"}, {20240801, 7, TokenType::uint32, "Llama 3 tokens"}}};

const LlmCKind* llm_c_kind(std::span<const std::byte> start) {
    if (start.size() < 4) return nullptr;
    const auto magic = load<std::int32_t>(start, 0);
    const auto found =
        std::find_if(llm_c_kinds.begin(), llm_c_kinds.end(), [&](auto& kind) { return kind.magic == magic; });
    return found == llm_c_kinds.end() ? nullptr : found;
}

} // namespace

std::uint64_t size_of(TokenType type) { return row_of(type).size; }
std::string_view name_of(TokenType type) { return row_of(type).name; }

StreamSource::StreamSource(std::string name, std::int64_t tokens, std::int64_t sequence)
    : name_(std::move(name)), tokens_(tokens), sequence_(sequence) {
    TUTTI_CHECK(sequence > 0, "sequence {}", sequence);
    if (tokens == 0) fail("{} is empty: it holds no token", name_);
    samples_ = (tokens - 1) / sequence;
    if (samples_ == 0)
        fail("{} holds {}, too few for one sample: a sequence of {} and its targets take one token more than {}", name_,
             counted(tokens, "token"), sequence, sequence);
}

void StreamSource::read(std::int64_t sample, std::span<std::int64_t> input, std::span<std::int64_t> targets) const {
    TUTTI_CHECK(sample >= 0 && sample < samples_, "sample {} of {}", sample, samples_);
    TUTTI_CHECK(std::ssize(input) == sequence_ && std::ssize(targets) == sequence_, "{} and {} for {}", input.size(),
                targets.size(), sequence_);
    read_tokens(sample * sequence_, input);
    std::copy(input.begin() + 1, input.end(), targets.begin());
    read_tokens((sample + 1) * sequence_, targets.last(1));
}

std::string StreamSource::describe_as(std::string_view what) const {
    return fmt::format("{}: {} {}, {} of {}", name_, tokens_, what, counted(samples_, "sample"), sequence_);
}

bool is_llm_c(std::span<const std::byte> start) { return llm_c_kind(start) != nullptr; }

std::unique_ptr<TokenSource> open_array(TokenArray tokens, std::string what, std::int64_t sequence) {
    return std::make_unique<FileStream>(std::move(tokens), std::move(what), sequence);
}

std::unique_ptr<TokenSource> open_text(InputFile file, std::int64_t sequence) {
    const auto count = narrow<std::int64_t>(file.size());
    return std::make_unique<FileStream>(TokenArray{std::move(file), 0, TokenType::uint8, count}, "bytes as tokens",
                                        sequence, TokenOrigin::text);
}

std::unique_ptr<TokenSource> open_llm_c(InputFile file, std::int64_t sequence) {
    constexpr std::uint64_t header_bytes = 256 * 4; // magic, version, token count, zeros
    const std::string name = file.path().string();
    if (file.size() < header_bytes)
        fail("{} begins as an llm.c token file, but holds {}, and the header alone takes {}", name,
             counted(file.size(), "byte"), header_bytes);
    std::array<std::byte, 12> header;
    file.read(0, header);
    const LlmCKind* kind = llm_c_kind(header);
    TUTTI_CHECK(kind, "{}", name);
    const auto version = load<std::int32_t>(header, 4), count = load<std::int32_t>(header, 8);
    if (version != kind->version)
        fail("{} is an llm.c file of {}, version {}; version {} is read", name, kind->what, version, kind->version);
    const std::uint64_t size = size_of(kind->type);
    if (count < 0 || file.size() - header_bytes != static_cast<std::uint64_t>(count) * size)
        fail("{} says it holds {} of {}, but {} follow its header", name, counted(count, "token"),
             counted(size, "byte"), counted(file.size() - header_bytes, "byte"));
    return open_array(TokenArray{std::move(file), header_bytes, kind->type, count}, std::string(kind->what), sequence);
}

} // namespace tutti::data

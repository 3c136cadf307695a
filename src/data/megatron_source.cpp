// Megatron's indexed datasets: tokens in a .bin, and an .idx that says how they fall into sequences and documents.
#include "base/checked.h"
#include "base/counted.h"
#include "base/error.h"
#include "data/file_sources.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::data {
namespace {

// The index: magic, version, type code, counts; then the sequences' lengths (int32), the byte of the .bin at which each
// begins (int64), and the sequences at which documents begin (int64, the last being the number of sequences).
constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr std::uint64_t header_bytes = 9 + 8 + 1 + 8 + 8;
constexpr std::uint64_t block = 1 << 16; // entries of the index held at a time

struct Index {
    TokenType type = TokenType::uint16;
    std::uint64_t sequences = 0;
    std::uint64_t documents = 0;
};

std::optional<TokenType> type_of(std::uint8_t code) {
    switch (code) {
    case 1: return TokenType::uint8;
    case 2: return TokenType::int8;
    case 3: return TokenType::int16;
    case 4: return TokenType::int32;
    case 5: return TokenType::int64;
    case 8: return TokenType::uint16;
    default: return std::nullopt; // 6 and 7 are floats
    }
}

Index read_header(const InputFile& file) {
    const std::string name = file.path().string();
    std::array<std::byte, header_bytes> header;
    if (file.size() < header_bytes)
        fail("{} is not a Megatron index: it holds {}, and its header alone takes {}", name,
             counted(file.size(), "byte"), header_bytes);
    file.read(0, header);
    if (!is_megatron_index(header)) fail("{} is not a Megatron index: it does not begin with MMIDIDX", name);
    if (const auto version = load<std::uint64_t>(header, 9); version != 1)
        fail("{} is a Megatron index of version {}; version 1 is read", name, version);
    const auto code = load<std::uint8_t>(header, 17);
    const auto type = type_of(code);
    if (!type) fail("{} holds tokens of type code {}; 1 to 5 and 8, the integers, are read", name, code);
    const Index index{*type, load<std::uint64_t>(header, 18), load<std::uint64_t>(header, 26)};
    const std::uint64_t limit = file.size() / 8; // keeps the sum below from wrapping
    if (index.sequences > limit || index.documents > limit ||
        file.size() != header_bytes + 12 * index.sequences + 8 * index.documents)
        fail("{} says it lists {} and {}, which does not match its {}", name, counted(index.sequences, "sequence"),
             counted(index.documents, "document bound"), counted(file.size(), "byte"));
    return index;
}

// The sequences must lie one after another and fill the .bin, as Megatron's builder writes them: then the .bin is one
// stream, and the index is not needed any more.
void check_sequences(const InputFile& file, const Index& index, const InputFile& tokens) {
    const std::string name = file.path().string();
    const std::uint64_t size = size_of(index.type);
    std::vector<std::int32_t> lengths(std::min(index.sequences, block));
    std::vector<std::int64_t> pointers(lengths.size());
    std::uint64_t expected = 0;
    for (std::uint64_t first = 0; first < index.sequences; first += block) {
        const std::uint64_t count = std::min(block, index.sequences - first);
        file.read(header_bytes + 4 * first, std::as_writable_bytes(std::span(lengths).first(count)));
        file.read(header_bytes + 4 * index.sequences + 8 * first,
                  std::as_writable_bytes(std::span(pointers).first(count)));
        for (std::uint64_t i = 0; i < count; ++i) {
            if (lengths[i] < 0) fail("{}: sequence {} has the length {}", name, first + i, lengths[i]);
            if (!std::cmp_equal(pointers[i], expected))
                fail("{}: sequence {} begins at byte {}, where {} was expected: sequences must lie one after another",
                     name, first + i, pointers[i], expected);
            const std::uint64_t bytes = static_cast<std::uint64_t>(lengths[i]) * size;
            if (bytes > tokens.size() - expected)
                fail("{}: sequence {} ends beyond the {} of {}", name, first + i, counted(tokens.size(), "byte"),
                     tokens.path().string());
            expected += bytes;
        }
    }
    if (expected != tokens.size())
        fail("{} holds {}, but {} lists {} of {}", tokens.path().string(), counted(tokens.size(), "byte"), name,
             counted(expected / size, "token"), counted(size, "byte"));
}

void check_documents(const InputFile& file, const Index& index) {
    std::vector<std::int64_t> bounds(std::min(index.documents, block));
    std::int64_t previous = 0;
    for (std::uint64_t first = 0; first < index.documents; first += block) {
        const auto part = std::span(bounds).first(std::min(block, index.documents - first));
        file.read(header_bytes + 12 * index.sequences + 8 * first, std::as_writable_bytes(part));
        for (std::int64_t bound : part) {
            if (bound < previous || std::cmp_greater(bound, index.sequences))
                fail("{} lists a document that begins at sequence {} of {}, after one that begins at {}",
                     file.path().string(), bound, index.sequences, previous);
            previous = bound;
        }
    }
}

} // namespace

bool is_megatron_index(std::span<const std::byte> start) {
    return start.size() >= magic.size() && std::memcmp(start.data(), magic.data(), magic.size()) == 0;
}

std::unique_ptr<TokenSource> open_megatron(const fs::path& tokens, const fs::path& index_path, std::int64_t sequence) {
    const InputFile index_file(index_path);
    const Index index = read_header(index_file);
    InputFile file(tokens);
    check_sequences(index_file, index, file);
    check_documents(index_file, index);
    const auto count = narrow<std::int64_t>(file.size() / size_of(index.type));
    return open_array(
        TokenArray{std::move(file), 0, index.type, count, index_path.string()},
        fmt::format("{} tokens in {} (Megatron)", name_of(index.type), counted(index.sequences, "sequence")), sequence);
}

} // namespace tutti::data

// A Megatron index, beside a .bin as long as the index says.
#include "tokens.h"

#include <algorithm>
#include <cstring>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

using namespace tutti;

namespace {

constexpr std::string_view start("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17); // magic and version
constexpr std::size_t header = start.size() + 1 + 8 + 8, type_at = start.size(), counts_at = type_at + 1;
constexpr std::uint64_t most_bytes = 1 << 16; // of the .bin

std::size_t size_of_type(std::uint8_t code) {
    switch (code) {
    case 3:
    case 8: return 2;
    case 4: return 4;
    case 5: return 8;
    default: return 1;
    }
}

std::vector<std::int32_t> lengths_in(const std::uint8_t* data, std::size_t size) {
    if (size < header) return {};
    std::uint64_t count = 0;
    std::memcpy(&count, data + counts_at, sizeof count);
    std::vector<std::int32_t> lengths(std::min<std::uint64_t>(count, (size - header) / 12));
    if (!lengths.empty()) std::memcpy(lengths.data(), data + header, 4 * lengths.size());
    return lengths;
}

// The counts that fill the file, and pointers that follow from the lengths.
std::size_t put_right(std::uint8_t* data, std::size_t size, bool pointers) {
    std::memcpy(data, start.data(), start.size());
    std::uint64_t sequences = 0, documents = 0;
    std::memcpy(&documents, data + counts_at + 8, sizeof documents);
    documents %= (size - header) / 8 + 1;
    sequences = (size - header - 8 * documents) / 12;
    std::memcpy(data + counts_at, &sequences, sizeof sequences);
    std::memcpy(data + counts_at + 8, &documents, sizeof documents);
    size = header + 12 * sequences + 8 * documents;
    if (!pointers) return size;
    std::vector<std::int32_t> lengths = lengths_in(data, size);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] = lengths[i] & 0xFF;
        std::memcpy(data + header + 4 * i, &lengths[i], 4);
        std::memcpy(data + header + 4 * lengths.size() + 8 * i, &at, 8);
        at += lengths[i] * static_cast<std::int64_t>(size_of_type(data[type_at]));
    }
    return size;
}

} // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    return size < header || seed % 4 == 0 ? size : put_right(data, size, seed % 4 > 1);
}

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Folder folder;
    fuzz::accepts([&] {
        std::uint64_t bytes = 0;
        for (const std::int32_t length : lengths_in(data, size))
            bytes = std::min(bytes + static_cast<std::uint32_t>(length) * size_of_type(data[type_at]), most_bytes);
        std::string tokens(bytes, '\0');
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<char>(data[i % size]);
        folder.write("tokens.bin", tokens);
        folder.write("tokens.idx", fuzz::text_of(data, size));
        fuzz::read_samples(*data::open_tokens((folder / "tokens.idx").string(), 4));
    });
    return 0;
}

// A safetensors file. What is read of it is laid out again, and has to come back.
#include "formats/safetensors.h"

#include "fuzz.h"

#include <algorithm>
#include <cstring>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

using namespace tutti;
using namespace tutti::formats;

namespace {

std::string file_like(const SafetensorsFile& file) {
    std::vector<StoredTensor> tensors;
    for (const TensorEntry& entry : file.entries()) tensors.push_back(entry);
    const SafetensorsLayout layout = lay_out_safetensors(tensors, file.metadata());
    std::string bytes = layout.head;
    bytes.resize(layout.size());
    for (std::size_t i = 0; i < file.entries().size(); ++i) {
        const TensorEntry& to = layout.entries[i];
        file.read(file.entries()[i], std::as_writable_bytes(std::span(bytes).subspan(to.begin, to.bytes())));
    }
    return bytes;
}

void check_same(const SafetensorsFile& one, const SafetensorsFile& other) {
    TUTTI_CHECK(one.entries().size() == other.entries().size(), "{}", other.entries().size());
    TUTTI_CHECK(one.metadata() == other.metadata(), "{} keys", other.metadata().size());
    for (const TensorEntry& entry : one.entries()) {
        const TensorEntry* found = other.find(entry.name);
        TUTTI_CHECK(found && found->type == entry.type, "{}", entry.name);
    }
}

} // namespace

// Most mutations of the header change its length too, which stands before it, and nothing would be read of them.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    constexpr std::size_t prefix = sizeof(std::uint64_t);
    if (size < prefix || max_size <= prefix || seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
    std::uint64_t length = 0;
    std::memcpy(&length, data, prefix);
    length = std::min<std::uint64_t>(length, size - prefix);
    const std::vector<std::uint8_t> tensors(data + prefix + length, data + size);
    const std::size_t room = max_size - prefix - std::min(tensors.size(), max_size - prefix);
    if (room == 0) return LLVMFuzzerMutate(data, size, max_size);
    length = LLVMFuzzerMutate(data + prefix, length, room);
    std::memcpy(data, &length, prefix);
    std::ranges::copy(tensors, data + prefix + length);
    return prefix + length + tensors.size();
}

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Folder folder;
    fuzz::accepts([&] {
        folder.write("a.safetensors", fuzz::text_of(data, size));
        const SafetensorsFile file(folder / "a.safetensors");
        for (const auto& [name, type] : file.foreign())
            TUTTI_CHECK(!fuzz::accepts([&] { file.find(name); }), "{} is {}", name, type);
        folder.write("b.safetensors", file_like(file));
        check_same(file, SafetensorsFile(folder / "b.safetensors"));
    });
    return 0;
}

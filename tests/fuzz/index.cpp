// A model.safetensors.index.json beside two shards.
#include "formats/tensor_store.h"
#include "fuzz.h"

using namespace tutti;
using namespace tutti::formats;

namespace {

void read_all(const TensorStore& store) {
    for (const std::string& name : store.names())
        fuzz::accepts([&] {
            const TensorEntry& entry = store.entry(name);
            std::vector<std::byte> raw(entry.bytes()), wide(static_cast<std::size_t>(entry.type.shape.elements()) * 4);
            store.read(name, raw);
            store.read_converted(name, DType::float32, wide);
        });
}

} // namespace

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Folder folder;
    static const bool filled = [] {
        folder.write("model-1.safetensors", fuzz::small_safetensors("a."));
        folder.write("model-2.safetensors", fuzz::small_safetensors("b."));
        return true;
    }();
    TUTTI_CHECK(filled, "no shards");
    fuzz::accepts([&] {
        folder.write("model.safetensors.index.json", fuzz::text_of(data, size));
        read_all(TensorStore(folder.path()));
    });
    return 0;
}

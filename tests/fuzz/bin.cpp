// A file of training data, under the name of a token file and under none: the rest of its kinds is told by their bytes.
#include "tokens.h"

using namespace tutti;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Folder folder;
    for (const char* name : {"tokens.bin", "tokens"})
        fuzz::accepts([&] {
            folder.write(name, fuzz::text_of(data, size));
            const std::int64_t sequence = size % 2 == 0 ? 0 : 4;
            fuzz::read_samples(*data::open_tokens((folder / name).string(), sequence));
        });
    return 0;
}

// A tokenizer.json: it encodes a text and decodes what came of it.
#include "text/tokenizer.h"
#include "fuzz.h"

using namespace tutti;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const auto tokenizer = text::read_tokenizer_json(fuzz::text_of(data, size), "tokenizer.json");
        for (std::string_view one : {"", " Hello,\tw\u00f6rld's 12345 \u4e2d\u6587\n\n<s>[CLS] a\u0301\U0001f600  "}) {
            std::vector<text::Id> ids;
            fuzz::accepts([&] { ids = tokenizer->encode(one, true); });
            ids.push_back(3);
            tokenizer->decode(ids, size % 2 == 0);
        }
    });
    return 0;
}

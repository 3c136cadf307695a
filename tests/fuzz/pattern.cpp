// A pattern of a tokenizer, then a text that it is matched against.
#include "text/pattern.h"
#include "fuzz.h"
#include "text/unicode.h"

using namespace tutti;

int fuzz::read_input(const std::uint8_t* data, std::size_t size) {
    const std::string all = text::to_utf8(fuzz::text_of(data, size));
    const std::string_view bytes = all;
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    fuzz::accepts([&] {
        const auto pattern = text::Pattern::of_expression(std::string(bytes.substr(0, end)), "here");
        for (std::string_view one : {bytes.substr(end), std::string_view("a 1's\n\u4e2d\u0301\u3000")})
            if (!one.empty()) pattern.matches(one);
    });
    return 0;
}

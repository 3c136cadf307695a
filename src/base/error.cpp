#include "base/error.h"

namespace tutti {
namespace {

// A file may hold names of megabytes. The file system's own, of at most 255 characters, stay whole in most folders.
constexpr std::size_t longest_word = 500, shown_of_longer = 160;

std::string shortened(std::string_view word) {
    if (word.size() <= longest_word) return std::string(word);
    std::string_view punctuation = word.substr(word.size() - 1);
    if (punctuation.find_first_of(":;,") == std::string_view::npos) punctuation = "";
    std::size_t end = shown_of_longer;
    while (end > 0 && (word[end] & 0xc0) == 0x80) --end; // characters of UTF-8 stay whole
    return fmt::format("{}... ({} characters){}", word.substr(0, end), word.size() - punctuation.size(), punctuation);
}

} // namespace

std::string with_short_names(std::string_view sentence) {
    std::string text;
    while (true) {
        const std::size_t end = sentence.find(' ');
        text += shortened(sentence.substr(0, end));
        if (end == std::string_view::npos) return text;
        text += ' ';
        sentence.remove_prefix(end + 1);
    }
}

void report_bug(const char* expression, const char* file, int line, const std::string& values) {
    throw Bug(fmt::format("{}:{}: {} does not hold: {}", file, line, expression, values));
}

} // namespace tutti
